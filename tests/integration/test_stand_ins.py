"""What stands in for the outside: a pipeline that honours keys, and a page of mails that cannot hurt its reader."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import httpx2
import pytest
from defusedxml import ElementTree

from console.embedded import free_port
from console.embedded.pipeline import Pipeline, Wanted
from console.embedded.stand_ins import StandIns
from console.migrate import ROOT
from tests.integration.test_mail_catcher import send

BODY = {"repository": "octo-org/shop", "tag": "v1", "environment": "production"}


@pytest.fixture
def stand_ins(tmp_path: Path) -> Iterator[StandIns]:
    """Both servers."""
    with StandIns(tmp_path, port=free_port(), smtp_port=free_port()) as made:
        yield made


def deploy(stand_ins: StandIns, key: str = "k1", body: Any = BODY) -> Any:
    """Ask the pipeline."""
    headers = {"Idempotency-Key": key} if key else {}
    return httpx2.post(f"{stand_ins.service}/deployments", json=body, headers=headers, timeout=20)


def mailed(stand_ins: StandIns, subject: str, text: str, subtype: str = "plain") -> Any:
    """The page of a mail that was sent over SMTP."""
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "ann@example.org", "bob@example.org", subject
    message.set_content(text, subtype=subtype)
    send(stand_ins.mail, message)
    return httpx2.get(f"{stand_ins.mails}1")


def test_a_key_is_one_deployment_also_after_a_restart(stand_ins: StandIns, tmp_path: Path) -> None:
    first, second = deploy(stand_ins), deploy(stand_ins)
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json() == second.json() and first.json()["run"].startswith("run-1-")
    again = Pipeline(tmp_path / "pipeline.jsonl")
    run, new = again.deploy("k1", Wanted(**BODY)) or (None, True)
    assert run is not None and (run.run, new) == (first.json()["run"], False)
    assert [one.came_to for one in stand_ins.pipeline.requests] == ["performed", "repeated"]


def test_a_key_that_stands_for_something_else_is_refused(stand_ins: StandIns) -> None:
    deploy(stand_ins)
    assert deploy(stand_ins, body=BODY | {"tag": "v2"}).status_code == 422
    assert len(stand_ins.pipeline.deployments) == 1


@pytest.mark.parametrize(("key", "body"), [("", BODY), ("k", {"tag": "v1"}), ("k", []), ("k", BODY | {"more": 1})])
def test_a_request_that_says_too_little_deploys_nothing(stand_ins: StandIns, key: str, body: Any) -> None:
    answer = deploy(stand_ins, key, body)
    assert answer.status_code == 400 and "Send" in answer.json()["error"]
    assert stand_ins.pipeline.deployments == []


def test_answers_are_kept_back_after_the_deployment_and_many_of_one_key_are_one(stand_ins: StandIns) -> None:
    httpx2.post(f"{stand_ins.service}/hold")
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(deploy, stand_ins) for _ in range(8)]
        assert stand_ins.pipeline.stands(8, 20)
        assert len(stand_ins.pipeline.deployments) == 1 and not any(one.done() for one in asked)
        assert httpx2.post(f"{stand_ins.service}/release", follow_redirects=False).status_code == 303
        assert {one.result().json()["run"] for one in asked} == {stand_ins.pipeline.deployments[0].run}


def test_the_page_of_the_pipeline_shows_what_it_did(stand_ins: StandIns) -> None:
    deploy(stand_ins, body=BODY | {"repository": "<script>alert(1)</script>"})
    page = httpx2.get(f"{stand_ins.service}/")
    assert "&lt;script&gt;" in page.text and "<script" not in page.text
    assert "run-1" in page.text and "performed" in page.text


def test_a_mail_is_shown_escaped_and_only_web_links_are_links(stand_ins: StandIns) -> None:
    text = "See http://127.0.0.1:1/a/v1.x?y=1&z=<b>'\njavascript:alert(1) <img src=x onerror=alert(2)>\n"
    page = mailed(stand_ins, "<b>Hello</b>", text)
    assert page.status_code == 200 and "<b>" not in page.text and "<img" not in page.text
    assert re.findall(r"<a href='([^']+)'", page.text) == ["./", "http://127.0.0.1:1/a/v1.x?y=1&amp;z="]
    shown = re.search("<pre>(.*)</pre>", page.text, re.DOTALL)
    assert shown is not None and "".join(ElementTree.fromstring(shown[0]).itertext()) == text


def test_a_mail_of_html_is_shown_as_its_source(stand_ins: StandIns) -> None:
    page = mailed(stand_ins, "Hi", "<p>Hi <script>alert(1)</script></p>", "html")
    assert "&lt;script&gt;" in page.text and "<script" not in page.text


def test_the_pages_fetch_nothing_run_nothing_and_tell_no_other_site_where_they_are(stand_ins: StandIns) -> None:
    for page in (mailed(stand_ins, "Hi", "there"), httpx2.get(stand_ins.mails), httpx2.get(f"{stand_ins.service}/")):
        policy = page.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "script-src" not in policy
        assert page.headers["Referrer-Policy"] == "no-referrer"


def test_the_list_is_newest_first_and_what_is_not_there_is_told(stand_ins: StandIns) -> None:
    mailed(stand_ins, "first", "x")
    mailed(stand_ins, "second", "x")
    listed = httpx2.get(stand_ins.mails).text
    assert listed.index("second") < listed.index("first")
    assert httpx2.get(f"{stand_ins.mails}9").status_code == 404


def test_a_name_of_somebody_else_that_leads_here_is_not_answered(stand_ins: StandIns) -> None:
    mailed(stand_ins, "secret", "x")
    answer = httpx2.get(stand_ins.mails, headers={"Host": "evil.example"})
    assert answer.status_code == 400 and "secret" not in answer.text


def test_the_verb_serves_both_until_it_is_told_to_stop(tmp_path: Path) -> None:
    port, smtp_port = free_port(), free_port()
    verb = [sys.executable, "-m", "console.cli", "stand-ins", "--home", str(tmp_path), "--port", str(port)]
    process = subprocess.Popen([*verb, "--smtp-port", str(smtp_port)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and f"http://127.0.0.1:{port}/mails/" in process.stdout.readline()
        assert httpx2.get(f"http://127.0.0.1:{port}/").status_code == 200
        with socket.create_connection(("127.0.0.1", smtp_port), timeout=10) as line:
            assert line.recv(3) == b"220"
    finally:
        process.send_signal(signal.SIGTERM)
        told, _ = process.communicate(timeout=30)
    assert process.returncode == 0, told
