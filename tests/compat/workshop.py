"""A client of the workshop's thread server, written from the shapes of its three endpoints and nothing else.

    POST /thread                {message}                                -> {thread_id, events}
    GET  /thread/:id                                                     -> the thread, or 404
    POST /thread/:id/response   {type: "response", response}             -> {events}
                                {type: "approval", approved, comment?}   -> {events}, or 400
                                                 {error, awaitingHumanResponse, awaitingHumanApproval}

What to do next stands in the last event: `data.intent` is `done_for_now` or `request_more_information` (both with a
`message` to read), or the name of a tool that waits for an approval; `data.response_url` is where to answer. It knows
no event types, no call ids and no digests. Base URL and headers are arguments; nothing else is ours.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urljoin
from urllib.request import Request, urlopen

Person = Callable[[str], str]
"""Who sits at the terminal: reads a line, types one."""


class Mismatch(Exception):
    """The thread waits for something else than what was sent."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        super().__init__(body["error"])
        self.response: bool = body["awaitingHumanResponse"]
        self.approval: bool = body["awaitingHumanApproval"]


class NotFound(Exception):
    """There is no such thread."""


@dataclass
class Workshop:
    """One server."""

    base_url: str
    headers: Mapping[str, str] = field(default_factory=dict)

    def launch(self, message: str) -> dict[str, Any]:
        """Start a thread; the whole turn runs inside the request."""
        return self._send("POST", "/thread", {"message": message})

    def thread(self, thread_id: str) -> dict[str, Any]:
        """Look at a thread."""
        return self._send("GET", f"/thread/{thread_id}")

    def respond(self, url: str, response: str) -> dict[str, Any]:
        """Say something."""
        return self._send("POST", url, {"type": "response", "response": response})

    def approve(self, url: str, approved: bool, comment: str | None = None) -> dict[str, Any]:
        """Decide about the tool that waits."""
        said = {} if comment is None else {"comment": comment}
        return self._send("POST", url, {"type": "approval", "approved": approved, **said})

    def talk(self, message: str, person: Person) -> str:
        """Keep a conversation going until it is done for now; its last message."""
        thread = self.launch(message)
        while True:
            data = thread["events"][-1]["data"]
            match data["intent"]:
                case "done_for_now":
                    return str(data["message"])
                case "request_more_information":
                    thread = self.respond(data["response_url"], person(data["message"]))
                case tool:
                    said = person(f"{tool} {data['a']} {data['b']}?")
                    yes = said == "yes"
                    thread = self.approve(data["response_url"], yes, None if yes else said)

    def _send(self, method: str, url: str, body: Any = None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **self.headers}
        try:
            with urlopen(Request(urljoin(self.base_url, url), data, headers, method=method), timeout=60) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except HTTPError as error:
            told = json.load(error)
            if error.code == 404:
                raise NotFound(told["error"]) from None
            if error.code == 400 and "awaitingHumanApproval" in told:
                raise Mismatch(told) from None
            raise
