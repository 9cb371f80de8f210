"""Every error of the core, drawn; the docstring of a class is its default message.

    TwelvefoldError
    ├── DeclarationError   an agent, tool or binding is written wrong; raised when it is loaded
    ├── ToolError          what the tool was asked to do did not happen; the model may change something
    │   └── Conflict       our own rows moved under a Write; the commit is repeated
    ├── Fatal              no model can mend this: bad key, spent quota, database gone
    ├── Transport          the outside did not answer properly; trying later may help
    ├── Rejection          the model's decision cannot be used; the text teaches it why
    ├── Unreadable         a stored event, state or tool is of a version this code does not know
    └── Stale              another worker was quicker; nothing of this step was written

`DeadlinePassed` derives from BaseException so that a tool's broad `except Exception` cannot swallow it.
"""

from __future__ import annotations


class TwelvefoldError(Exception):
    """Something in Twelvefold went wrong."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (self.__doc__ or "").strip())


class DeclarationError(TwelvefoldError):
    """The declaration of an agent, a tool or a binding is wrong."""


class ToolError(TwelvefoldError):
    """The tool did not do what it was asked to do.

    Raise it from a tool only when it is true that nothing happened. `affected` names the parameters to
    reconsider, `retry_after` (seconds) when trying again may help, `suggestion` what to do instead.
    """

    def __init__(
        self,
        message: str | None = None,
        *,
        affected: tuple[str, ...] = (),
        retry_after: int | None = None,
        suggestion: str | None = None,
    ) -> None:
        super().__init__(message)
        self.affected = affected
        self.retry_after = retry_after
        self.suggestion = suggestion


class Conflict(ToolError):
    """Our own rows changed while the tool was writing."""


class Fatal(TwelvefoldError):
    """No model can mend this; an operator has to.

    `code` is the reason code stored on the task, such as `auth`, `quota` or `declaration`.
    """

    def __init__(self, message: str | None = None, *, code: str = "fatal") -> None:
        super().__init__(message)
        self.code = code


class Transport(TwelvefoldError):
    """The other side did not answer properly; trying again later may help.

    `retry_after` is in seconds, None when the other side named no time.
    """

    def __init__(
        self, message: str | None = None, *, retry_after: float | None = None, kind: str = "transport"
    ) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.kind = kind


class Rejection(TwelvefoldError):
    """The model's decision cannot be used.

    `kind` is one of: prose, unknown_tool, arguments, cut_off, refusal, several, empty.
    """

    def __init__(self, message: str, *, kind: str, tool: str | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.tool = tool


class Unreadable(TwelvefoldError):
    """What is stored is of a version that this code does not know."""


class Stale(TwelvefoldError):
    """Another worker was quicker; nothing of this step was written."""


class DeadlinePassed(BaseException):
    """The time given to this tool or step is over."""
