"""Tools as classes: the call a model makes is an instance, its fields are the arguments.

| base     | the author writes             | runs                          | how often                |
|----------|-------------------------------|-------------------------------|--------------------------|
| `Read`   | `run(ctx)`                    | no transaction open           | may repeat               |
| `Write`  | `write(db)`                   | inside the step's transaction | exactly once             |
| `Effect` | `run(ctx)`, perhaps           | after a durable Begin         | `run` at least once with |
|          | `record(result, db)`          |                               | one key, or asked        |

`run` may happen twice, `record` happens once. A wrong combination is a DeclarationError when the class is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter

from .errors import DeclarationError
from .verdict import AUTO, Verdict

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from httpx2 import Client
    from sqlalchemy.orm import Session

    from .state import Task

R = TypeVar("R")
Kind = Literal["read", "write", "effect", "control"]
Doubt = Literal["ask", "find", "same_key"]
MEMBERS = {
    "run", "write", "record", "find", "dry_run", "key", "approval", "offered", "show", "check", "about", "upgrade",
}  # fmt: skip
DESTRUCTIVE = "destructive"
EXECUTE = "execute"
HEADER = "Write for example `class Pay(Effect[Receipt], timeout=5, doubt='find', needs={'money'}, was=('charge',))`."


class Preview(BaseModel):
    """What a tool would do, from its `dry_run(ctx)`, which looks and changes nothing; a person sees it beside the call.

    `fingerprint` stands for what was looked at. It is read again right before the call begins, and another one makes
    the approval stale.
    """

    model_config = ConfigDict(frozen=True)

    shown: Any
    fingerprint: str = ""


class Ctx(Protocol):
    """What a running tool may use. `key` identifies the effect to the outside and is fixed before the first attempt."""

    @property
    def key(self) -> str: ...
    @property
    def task(self) -> Task: ...
    @property
    def http(self) -> Client: ...
    def db(self) -> AbstractContextManager[Session]: ...


@dataclass(frozen=True)
class Spec:
    """What a tool class declared. `timeout` and `settle_after` are seconds."""

    name: str
    kind: Kind
    needs: frozenset[str]
    timeout: float
    was: tuple[str, ...]
    doubt: Doubt
    settle_after: float
    result: TypeAdapter[Any]


class Tool(BaseModel, Generic[R]):
    """The common part of every tool; derive from Read, Write or Effect, never from this."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    __spec__: ClassVar[Spec]
    __kind__: ClassVar[Kind] = "control"
    __writes__: ClassVar[frozenset[str]] = frozenset()
    __never__: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls, **declared: Any) -> None:
        super().__init_subclass__()

    @classmethod
    def __pydantic_init_subclass__(
        cls,
        *,
        needs: Iterable[str] = (),
        timeout: float = 10.0,
        was: tuple[str, ...] = (),
        doubt: Doubt = "ask",
        settle_after: float | None = None,
        **rest: Any,
    ) -> None:
        super().__pydantic_init_subclass__(**rest)
        if rest:
            raise DeclarationError(f"{cls.__name__}: {', '.join(rest)}= is no word of a tool's header. {HEADER}")
        if isinstance(needs, str) or isinstance(was, str):
            raise DeclarationError(f"{cls.__name__}: needs= is a set and was= a tuple of names. {HEADER}")
        if cls.__pydantic_generic_metadata__["origin"] or cls.__module__ == __name__:
            return
        cls.__spec__ = Spec(
            name=_snake(cls.__name__),
            kind=cls.__kind__,
            needs=frozenset(needs),
            timeout=timeout,
            was=was,
            doubt=doubt,
            settle_after=2 * timeout if settle_after is None else settle_after,
            result=TypeAdapter(_result_type(cls)),
        )
        _check_declaration(cls)

    def approval(self, task: Task) -> Verdict:
        """Whether this call may run; asked live, its verdict is stored. Pure."""
        return AUTO

    @classmethod
    def offered(cls, task: Task) -> bool:
        """Whether the model may choose this tool now."""
        return True

    def show(self, result: R) -> Any:
        """What the model sees of a result; all of it is kept."""
        return self.__spec__.result.dump_python(result, mode="json")

    def check(self, result: R) -> str | None:
        """What is wrong with a result, by rule: say first whether it is empty, of the wrong shape or suspicious, then
        why. None: nothing. It stands beside the result for the model, and nothing else changes: an effect is neither
        repeated nor unrecorded. Pure.
        """
        return None

    def about(self) -> str | None:
        """The business entity this call is about, when the call tells it."""
        return None

    @classmethod
    def upgrade(cls, old: dict[str, Any]) -> dict[str, Any]:
        """Arguments stored by an older version of this tool as arguments of today's."""
        return old


class Read(Tool[R]):
    """Looks and changes nothing; may be repeated."""

    __kind__: ClassVar[Kind] = "read"
    __writes__: ClassVar[frozenset[str]] = frozenset({"run"})
    __never__: ClassVar[frozenset[str]] = frozenset({"write", "record", "find", "key", "dry_run"})


class Write(Tool[R]):
    """Changes our own rows, inside the step's transaction: exactly once."""

    __kind__: ClassVar[Kind] = "write"
    __writes__: ClassVar[frozenset[str]] = frozenset({"write"})
    __never__: ClassVar[frozenset[str]] = frozenset({"run", "record", "find", "key"})


class Effect(Tool[R]):
    """Changes the outside. `doubt=` in the class header says how a lost answer is settled: ask, find or same_key."""

    __kind__: ClassVar[Kind] = "effect"
    __writes__: ClassVar[frozenset[str]] = frozenset({"run"})
    __never__: ClassVar[frozenset[str]] = frozenset({"write"})

    def key(self) -> str | None:
        """What identifies this effect outside; None means task and call. The business fact stops a second one of the
        same tenant.
        """
        return None

    def find(self, ctx: Ctx) -> R | None:
        """Look outside whether the effect happened: its result, or None when it is certain that it did not."""
        return None

    def record(self, result: R, db: Session) -> None:
        """Write our own rows about what happened, inside the step's transaction: exactly once."""
        return None


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def _result_type(cls: type[Tool[Any]]) -> Any:
    for base in cls.__mro__:
        metadata = getattr(base, "__pydantic_generic_metadata__", None)
        if metadata and metadata["origin"] and metadata["args"] and not isinstance(metadata["args"][0], TypeVar):
            return metadata["args"][0]
    raise DeclarationError(f"{cls.__name__}: say what the tool gives back, as in `class {cls.__name__}(Read[Order])`.")


def _check_declaration(cls: type[Tool[Any]]) -> None:
    framework = {base.__doc__ for base in cls.__mro__ if base.__module__ in (__name__, "pydantic.main")}
    if not (cls.__doc__ or "").strip() or cls.__doc__ in framework:
        raise DeclarationError(
            f"{cls.__name__}: needs a docstring: what it does and when to use it. The model reads it."
        )
    own = {attribute for base in cls.__mro__ if base.__module__ != __name__ for attribute in vars(base)}
    _check_members(cls, own)
    _check_header(cls, own)


def _check_members(cls: type[Tool[Any]], own: set[str]) -> None:
    name, kind = cls.__name__, cls.__spec__.kind
    for missing in sorted(cls.__writes__ - own):
        raise DeclarationError(f"{name}: {kind} tools need {missing}().")
    for wrong in sorted(cls.__never__ & own):
        raise DeclarationError(
            f"{name}: {kind} tools have no {wrong}(). Read looks, Write changes our rows, Effect the outside."
        )
    for hidden in sorted(cls.model_fields.keys() & MEMBERS):
        raise DeclarationError(f"{name}: the argument {hidden!r} hides {hidden}() of tools. Give it another name.")
    for member in sorted(own & MEMBERS):
        if iscoroutinefunction(getattr(cls, member)):
            raise DeclarationError(f"{name}: {member}() is async; tools are plain functions. Write `def {member}`.")


def _check_header(cls: type[Tool[Any]], own: set[str]) -> None:
    name, spec = cls.__name__, cls.__spec__
    if spec.timeout <= 0 or spec.settle_after < 0:
        raise DeclarationError(f"{name}: timeout= and settle_after= are seconds, more than zero.")
    if EXECUTE in spec.needs:
        raise DeclarationError(
            f"{name}: the capability '{EXECUTE}' is reserved: Twelvefold runs no code that a model wrote, as it has no "
            "sandbox. Write a tool that does the one thing, with typed arguments, and leave it out of needs=."
        )
    if DESTRUCTIVE in spec.needs and "dry_run" not in own:
        raise DeclarationError(f"{name}: a destructive tool needs dry_run(ctx), shown to the person who approves.")
    if spec.doubt not in ("ask", "find", "same_key") or (spec.kind != "effect" and spec.doubt != "ask"):
        raise DeclarationError(f"{name}: doubt= is 'ask', 'find' or 'same_key', and only an Effect has it.")
    if spec.doubt == "find" and "find" not in own:
        raise DeclarationError(f"{name}: doubt='find' needs find(ctx) -> result | None.")
