"""Answers that say no: problem details (RFC 9457) that teach what was expected and what to do next."""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse


class Problem(Exception):
    """The request cannot be taken. `detail` is read by the sender, so it never holds a secret or anything of ours.

    `members` are further members of the answer, for programs to read.
    """

    def __init__(
        self, status: int, title: str, detail: str, headers: dict[str, str] | None = None, **members: Any
    ) -> None:
        super().__init__(title)
        self.status = status
        self.title = title
        self.detail = detail
        self.headers = headers
        self.members = members

    def answer(self) -> JSONResponse:
        """The answer as `application/problem+json`."""
        return JSONResponse(
            {
                "type": "about:blank",
                "title": self.title,
                "status": self.status,
                "detail": self.detail,
                **self.members,
            },
            status_code=self.status,
            headers=self.headers,
            media_type="application/problem+json",
        )
