"""The one-file client against the real API over a real line, and what it does when the other side is away."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from typer.testing import CliRunner

from console.cli import cli
from tests.callers import callers
from tests.fakes.loopback import until_true
from tests.hands import once
from tests.harness import fleet
from twelvefold.controls import Wait


def printed(folder: Path) -> Any:
    """The client as a user gets it: what the command line prints, imported from a file of its own."""
    done = CliRunner().invoke(cli, ["client"])
    assert done.exit_code == 0
    path = folder / "client.py"
    path.write_text(done.output)
    spec = importlib.util.spec_from_file_location("printed_client", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_client_needs_nothing_but_the_standard_library(tmp_path: Path) -> None:
    client = printed(tmp_path)
    tree = ast.parse(Path(client.__file__).read_text())
    used = {name.split(".")[0] for node in ast.walk(tree) for name in (
        [each.name for each in node.names] if isinstance(node, ast.Import) else
        [node.module or ""] if isinstance(node, ast.ImportFrom) else []
    )}  # fmt: skip
    assert used <= sys.stdlib_module_names
    alone = [sys.executable, "-I", "-S", "-c", "import runpy, sys; runpy.run_path(sys.argv[1])", client.__file__]
    assert subprocess.run(alone, capture_output=True, check=False).returncode == 0


@contextmanager
def listening(app: Any) -> Iterator[str]:
    """The application on a port of this machine."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, lifespan="off", timeout_graceful_shutdown=5))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until_true(lambda: server.started, 30)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)


def test_the_client_opens_answers_wakes_and_reads_threads_and_a_repeat_does_nothing_twice(
    fresh_database: Any, tmp_path: Path
) -> None:
    client = printed(tmp_path)
    with fleet(fresh_database, once(Wait(event="build-7", why="it builds"))) as f, callers(f) as c:
        token = c.token("requester", "operator", "reader")
        with listening(c.client.app) as url:
            ours = client.Client(url + "/", token)
            first, second = (ours.open("build it", agent="notes", key="order-4711") for _ in range(2))
            assert first["thread_id"] == second["thread_id"] and first["status"] == "ready"
            id = first["thread_id"]
            assert f.drain(id) == "waiting"
            for _ in range(2):
                woken = ours.happened("build-7", {"passed": True}, key="ci-1")
            assert woken["thread_id"] == id
            assert f.drain(id) == "done"
            assert ours.thread(id)["status"] == "done"
            seqs = [event["seq"] for event in ours.events(id)]
            assert seqs == list(range(1, len(seqs) + 1)) and len(seqs) > 4
            assert ours.respond(id, "and once more")["thread_id"] == id
            assert ours.cancel(id, "enough")["accepted"]
            with pytest.raises(client.Refused, match="404 Unknown thread") as refused:
                ours.thread("0190a0a0-0000-7000-8000-000000000001")
            assert (refused.value.status, token in str(refused.value)) == (404, False)
            with pytest.raises(client.Refused, match="401"):
                client.Client(url, "nobody").thread(id)


def test_the_client_repeats_with_one_key_what_was_not_taken_and_carries_its_token_nowhere_else(tmp_path: Path) -> None:
    client, seen, pauses = printed(tmp_path), list[tuple[str, str | None]](), list[float]()
    answers = [(503, {"Retry-After": "7"}), (429, {}), (200, {}), (302, {"Location": "http://127.0.0.1:1/"})]

    class Away(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            status, headers = answers[len(seen)]
            self.rfile.read(int(self.headers["Content-Length"]))
            seen.append((self.path, self.headers["Idempotency-Key"]))
            self.send_response(status)
            for name, value in {**headers, "Content-Length": "2"}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Away) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        ours = client.Client(f"http://127.0.0.1:{server.server_address[1]}", "t0p", pause=pauses.append)
        assert ours.open("hello", wait=2) == {}
        with pytest.raises(client.Refused, match="302"):
            ours.happened("build-7")
        server.shutdown()
    assert {path for path, _ in seen[:3]} == {"/thread?wait=2"}
    assert len({key for _, key in seen[:3]}) == 1 and seen[3][1] not in (None, seen[0][1])
    assert pauses == [7.0, 1.0]
    gone = client.Client("http://127.0.0.1:1", "t0p", pause=pauses.append)
    with pytest.raises(OSError, match="refused"):
        gone.happened("build-7")
    assert len(pauses) == 2 + client.ATTEMPTS - 1
