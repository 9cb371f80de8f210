"""What stands in for the outside world on a machine of one's own: a mail catcher, a page to read its mails, and a
pipeline that deploys nothing; the two pages on one port of 127.0.0.1.
"""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from time import monotonic, sleep
from typing import Self

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from console.embedded import mailbox, pipeline
from console.embedded.child import StackError, port_is_free
from console.embedded.mail import MailCatcher
from console.embedded.pipeline import Pipeline
from console.page import page

STARTS_S = 30.0


def application(home: Path, made: Pipeline, hosts: tuple[str, ...]) -> Starlette:
    """The pages. Only `hosts` may be asked for, so that no page of the web can read the mails through a name of its
    own that leads here.
    """

    def index(_: Request) -> Response:
        return page("Stand-ins", "<p><a href='mails/'>Mails</a></p><p><a href='pipeline/'>Pipeline</a></p>")

    return Starlette(
        routes=[
            Route("/", index),
            Mount("/mails", routes=mailbox.routes(home / "mail")),
            Mount("/pipeline", routes=pipeline.routes(made)),
        ],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts), www_redirect=False)],
    )


class StandIns:
    """Both servers in threads of this process. Mails and deployments are kept in `home`."""

    def __init__(
        self,
        home: Path,
        *,
        port: int,
        smtp_port: int,
        host: str = "127.0.0.1",
        hosts: tuple[str, ...] = ("127.0.0.1", "localhost", "stand-ins"),
    ) -> None:
        self.mail = MailCatcher(home, port=smtp_port, host=host)
        self.pipeline = Pipeline(home / "pipeline.jsonl")
        self.address = f"http://127.0.0.1:{port}"
        self._port = port
        app = application(home, self.pipeline, hosts)
        config = uvicorn.Config(
            app, host=host, port=port, log_level="warning", access_log=False, timeout_graceful_shutdown=2
        )
        self._server = uvicorn.Server(config)
        self._thread: threading.Thread | None = None

    @property
    def mails(self) -> str:
        """Where the mails are read."""
        return f"{self.address}/mails/"

    @property
    def service(self) -> str:
        """Where the pipeline stands, for TWELVEFOLD_SERVICES; with a slash behind it, its page."""
        return f"{self.address}/pipeline"

    def start(self) -> None:
        """Listen; returns when both servers answer. Raises StackError."""
        if not port_is_free(self._port):
            raise StackError(f"The stand-ins cannot listen on port {self._port}: it is taken. Name another one.")
        self.mail.start()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._server.serve()), name="stand-ins", daemon=True)
        self._thread.start()
        deadline = monotonic() + STARTS_S
        while not self._server.started:
            if monotonic() > deadline or not self._thread.is_alive():
                raise StackError(f"The pages at {self.address} did not start within {STARTS_S:g} s.")
            sleep(0.01)

    def stop(self) -> None:
        """Send what was kept back, and stop listening."""
        self.pipeline.release()
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(timeout=10)
            self._thread = None
        self.mail.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
