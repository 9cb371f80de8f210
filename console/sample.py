"""GitHub's own examples of a push and of a published release, posted as GitHub would: signed, over HTTP."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable
from urllib.request import Request, urlopen
from uuid import uuid4

from .migrate import ROOT

PAYLOADS = ROOT / "tests" / "data" / "github"


class DemoFailed(Exception):
    """The demo did not come to its end; the text says where."""


def push() -> bytes:
    """GitHub's example of a push of one commit to the default branch, byte for byte."""
    return (PAYLOADS / "push-branch.json").read_bytes()


def release(tag: str = "") -> bytes:
    """GitHub's example of a published release, byte for byte, or the same with another tag."""
    body = (PAYLOADS / "release-published.json").read_bytes()
    if not tag:
        return body
    payload = json.loads(body)
    payload["release"]["tag_name"] = tag
    return json.dumps(payload).encode()


def post(http: str, secret: str, event: str, body: bytes, say: Callable[[str], None]) -> str:
    """Post a delivery, signed as GitHub signs; the id of the task it opened. Raises DemoFailed when it opened none."""
    signature = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    headers = {
        "Content-Type": "application/json",
        "X-GitHub-Event": event,
        "X-GitHub-Delivery": str(uuid4()),
        "X-Hub-Signature-256": f"sha256={signature}",
    }
    say(f"POST {http}/hooks/github  {event}, {len(body)} bytes, signed")
    with urlopen(Request(f"{http}/hooks/github", body, headers), timeout=10) as answer:
        verdict = json.loads(answer.read())
        say(f"  {answer.status} {verdict['outcome']}: task {verdict['task_id']}")
    if verdict["outcome"] != "accepted":
        raise DemoFailed(f"the webhook was not accepted: {verdict}")
    return str(verdict["task_id"])
