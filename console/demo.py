"""The demo: a signed release webhook becomes a recorded deployment and a mail, over real HTTP and SMTP.

It prints the log and the rows that were committed together, and exits 0; anything missing exits 1.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import typer

from workers.store.database import Database

from .dev import Stack
from .sample import DemoFailed, post_release
from .views import events, short

PATIENCE_S = 60.0


def demo(say: Callable[[str], None] = typer.echo) -> int:
    """Run it in a fresh place; 0 when everything came true, 1 otherwise."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="twelvefold-demo-") as folder:
        stack = Stack(Path(folder), flower=False)
        say("Starting PostgreSQL, Valkey, a mail catcher, three workers and the web application ...")
        try:
            with stack:
                _play(stack, say)
        except DemoFailed as error:
            say(f"\nThe demo failed: {error}")
            return 1
        finally:
            stack.destroy()
    say(f"\nDone in {time.monotonic() - began:.0f} s.")
    return 0


def _play(stack: Stack, say: Callable[[str], None]) -> None:
    db = Database(stack.env["DATABASE_URL"], size=2)
    try:
        if "OPENAI_API_KEY" not in stack.env:
            say("No OPENAI_API_KEY is set: the agent runs on its scripted model.")
        task_id = post_release(stack.http, stack.env["GITHUB_WEBHOOK_SECRETS"].split(",")[0], say)
        _wait_for_task(db, task_id)
        _show_log(db, task_id, say)
        _show_rows(db, task_id, say)
        _show_mail(stack, say)
    finally:
        db.close()


def _wait_for_task(db: Database, task_id: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        row = db.rows("SELECT status, waiting_for, reason FROM agent_tasks WHERE id = %(id)s", {"id": task_id})[0]
        if row["status"] == "done":
            return
        if row["status"] not in ("ready", "waiting") or row["waiting_for"] == "operator":
            break
        time.sleep(0.1)
    raise DemoFailed(f"the task came to {row}, not to done")


def _show_log(db: Database, task_id: str, say: Callable[[str], None]) -> None:
    say(f"\nThe log of task {task_id}:")
    for row in events(db, task_id):
        say(f"  {row['seq']:>2} {row['type']:<11} {short(row['data'])}")


def _show_rows(db: Database, task_id: str, say: Callable[[str], None]) -> None:
    together = db.rows(
        "SELECT d.repository, d.tag, d.summary, d.xmin::text AS row_tx, e.xmin::text AS event_tx, e.seq"
        "  FROM agent_events e JOIN deployments d ON d.tag = e.data -> 'result' ->> 'tag'"
        " WHERE e.task_id = %(id)s AND e.type = 'Returned' AND e.xmin = d.xmin",
        {"id": task_id},
    )
    if len(together) != 1:
        raise DemoFailed("the deployment and its event are not of one transaction")
    row = together[0]
    say(f"\nCommitted together, in transaction {row['row_tx']}:")
    say(f"  deployments   {row['repository']} {row['tag']}: {row['summary']}")
    say(f"  agent_events  {row['seq']} Returned")
    task = db.rows(
        "SELECT status, current_step, business_entity_id, outcome FROM agent_tasks WHERE id = %(id)s", {"id": task_id}
    )[0]
    say(f"  agent_tasks   now {task['status']} after {task['current_step']} steps, about {task['business_entity_id']}")


def _show_mail(stack: Stack, say: Callable[[str], None]) -> None:
    if stack.mail is None:
        say("\nThe result goes out through your own SMTP server.")
        return
    try:
        message = stack.mail.wait(1, timeout=PATIENCE_S)[0]
    except TimeoutError:
        raise DemoFailed("no mail arrived") from None
    say(f"\nThe mail that was delivered:\n  To: {message['To']}\n  Subject: {message['Subject']}")
    say(f"  Message-ID: {message['Message-ID']}")
    for line in message.get_content().strip().splitlines():
        say(f"  | {line}")
