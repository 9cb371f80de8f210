"""GitHub's own example of a published release, posted as GitHub would: signed, over HTTP."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable
from urllib.request import Request, urlopen
from uuid import uuid4

from .migrate import ROOT

PAYLOAD = ROOT / "tests" / "data" / "github" / "release-published.json"


class DemoFailed(Exception):
    """The demo did not come to its end; the text says where."""


def post_release(http: str, secret: str, say: Callable[[str], None]) -> str:
    """Post GitHub's own example of a published release, signed as GitHub signs; the id of the task it opened."""
    body = PAYLOAD.read_bytes()
    signature = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    headers = {
        "Content-Type": "application/json",
        "X-GitHub-Event": "release",
        "X-GitHub-Delivery": str(uuid4()),
        "X-Hub-Signature-256": f"sha256={signature}",
    }
    say(f"POST {http}/hooks/github  release.published, {len(body)} bytes, signed")
    with urlopen(Request(f"{http}/hooks/github", body, headers), timeout=10) as answer:
        verdict = json.loads(answer.read())
        say(f"  {answer.status} {verdict}")
    if verdict["outcome"] != "accepted":
        raise DemoFailed(f"the webhook was not accepted: {verdict}")
    return str(verdict["task_id"])
