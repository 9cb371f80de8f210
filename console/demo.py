"""The demo: two signed webhooks, a question by mail, a yes, a worker killed in the middle of the deployment, a result.

All of it over real HTTP and SMTP, on a fleet of processes. What it prints it has looked up, and it checks each claim:
exit code 0 when everything came true, 1 otherwise.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import typer

from workers import registry
from workers.operate import Operate
from workers.store.database import Database

from . import person
from .dev import Stack
from .sample import DemoFailed, post, push, release
from .views import short

PATIENCE_S = 60.0
OWN_WORLD = ("SMTP_", "TWELVEFOLD_SERVICES", "TWELVEFOLD_PUBLIC_URL")
"""What the demo never takes from the environment: it mails nobody and deploys nowhere."""
WORKERS = {"answers": 2, "steps": 1, "delivery": 1}
ROWS = """
SELECT d.repository, d.tag, d.run, d.summary, e.seq, t.status, t.current_step, d.xmin::text AS deployments,
       e.xmin::text AS agent_events, t.xmin::text AS agent_tasks
  FROM agent_tasks t JOIN agent_events e ON e.task_id = t.id AND e.type = 'Returned'
  JOIN deployments d ON d.tenant = t.tenant AND d.run = e.data -> 'result' ->> 'run'
 WHERE t.id = %(id)s
"""
HOLDER = """
SELECT w.pid, w.id::text AS worker FROM agent_tasks t JOIN workers_alive w ON w.id = t.worker_id WHERE t.id = %(id)s
"""
TIMELINE = """
SELECT e.seq, e.at, e.type, e.data, split_part(e.writer, '/', 1) AS worker,
       extract(epoch FROM e.at - min(e.at) OVER ())::float AS after
  FROM agent_events e WHERE e.task_id = %(id)s ORDER BY e.seq
"""


def demo(say: Callable[[str], None] = typer.echo) -> int:
    """Play it in a fresh place; 0 when everything came true, 1 otherwise."""
    began = time.monotonic()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(OWN_WORLD)}
    with tempfile.TemporaryDirectory(prefix="twelvefold-demo-") as folder:
        stack = Stack(Path(folder), environment, flower=False, workers=WORKERS)
        say("Starting PostgreSQL, Valkey, a mail catcher, a pipeline that deploys nothing, four workers and HTTP ...")
        try:
            with stack:
                say(f"  up after {time.monotonic() - began:.0f} s")
                _Story(stack, say).play()
        except Exception as error:  # whatever it was, the demo did not come true, and the exit code has to say so
            say(f"\nThe demo failed: {error if isinstance(error, DemoFailed) else repr(error)}")
            return 1
        finally:
            stack.destroy()
    say(f"\nEverything came true, in {time.monotonic() - began:.0f} s.")
    return 0


class _Story:
    def __init__(self, stack: Stack, say: Callable[[str], None]) -> None:
        self.stack, self.say = stack, say
        self.db = Database(stack.env["DATABASE_URL"], size=2)
        self.mail, self.pipeline = stack.stand_ins.mail, stack.stand_ins.pipeline

    def play(self) -> None:
        try:
            if not self.stack.env.get("OPENAI_API_KEY"):
                self.say("No OPENAI_API_KEY is set: the agent runs on its scripted model.")
            self._push()
            task = self._webhook("release", release(self._tag()))
            question = self._question()
            killed = self._decide_and_kill(task, question)
            self._finish(task, killed)
            self._result(task, question)
            self._show_timeline(task)
        finally:
            self.db.close()

    def _webhook(self, event: str, body: bytes) -> str:
        secret = self.stack.env["GITHUB_WEBHOOK_SECRETS"].split(",")[0]
        return post(self.stack.http, secret, event, body, self.say)

    def _push(self) -> None:
        self.say("\n1. A push arrives. Code keeps its commits for the next release; no model, no mail.")
        task = self._webhook("push", push())
        _until(lambda: self._status(task) == "done", f"task {task} to be done")
        asked = self.db.rows("SELECT 1 FROM agent_events WHERE task_id = %(id)s AND type = 'ModelAsked'", {"id": task})
        _must(not asked, "a push was put before the model")
        kept = self.db.rows("SELECT sha, author, message FROM commits")
        self.say(f"  kept: {kept[0]['sha'][:8]} {kept[0]['message']} ({kept[0]['author']})")
        self.say("\n2. A release is published. The agent looks up what it brings, decides, and asks by mail.")

    def _tag(self) -> str:
        """The tag as GitHub's example has it; in a database where that is out already, a new one."""
        out = self.db.rows("SELECT 1 FROM deployments WHERE tag = '0.0.1' LIMIT 1")
        return f"0.0.1+{int(time.time())}" if out else ""

    def _question(self) -> EmailMessage:
        message = self.mail.wait(1, timeout=PATIENCE_S)[0]
        self._show_mail(message)
        return message

    def _decide_and_kill(self, task: str, message: EmailMessage) -> str:
        """Say yes as a person would; when the pipeline has deployed and not answered yet, kill the worker."""
        question = person.read(message)
        if question is None:
            raise DemoFailed("the mail holds no link and no word")
        self.say("\n3. Opening the link decides nothing; the form with the word from the mail does.")
        before = self._log_length(task)
        (status, hidden), again = person.look(question), person.look(question)
        _must((status, hidden) == again and bool(hidden), f"the page answered {status}, then {again[0]}")
        _must(
            self._status(task) == "waiting" and self._log_length(task) == before, "opening the link changed something"
        )
        self.say(f"  GET /a/...   {status}, and again {again[0]}; the task waits as before")
        self.pipeline.hold()
        self.say(f"  POST /a/...  {person.approve(question, hidden)}, with the word {question.word}")
        self.say("\n4. The pipeline has deployed and keeps its answer back. The worker that waits for it is killed.")
        _must(self.pipeline.stands(1, PATIENCE_S), "no deployment reached the pipeline")
        holder = self.db.rows(HOLDER, {"id": task})[0]
        _must(holder["pid"] in self.stack.pids, "the task is held by a process that is not ours")
        os.kill(holder["pid"], signal.SIGKILL)
        self.say(f"  kill -9 {holder['pid']}  worker {holder['worker'][-6:]}, after Begin and before its commit")
        return str(holder["worker"])

    def _finish(self, task: str, killed: str) -> None:
        """Another worker asks again with the same key. The task is paused for a moment to look at its last commit."""
        _must(self.pipeline.stands(2, PATIENCE_S), "no other worker took over")
        operate = Operate(self.db, registry.load(self.stack.env.get("AGENT_MODULES", "agents")))
        operate.pause(task)
        self.pipeline.release()
        _until(lambda: self.db.rows(ROWS, {"id": task}), "the deployment to be recorded")
        self._show_rows(task)
        operate.resume(task)
        asked = [(one.came_to, one.key) for one in self.pipeline.requests]
        _must(len(self.pipeline.deployments) == 1, f"the pipeline deployed {len(self.pipeline.deployments)} times")
        _must([what for what, _ in asked] == ["performed", "repeated"], f"the pipeline was asked {asked}")
        _must(len({key for _, key in asked}) == 1, "the two requests have different keys")
        writers = {row["type"]: row["worker"] for row in self.db.rows(TIMELINE, {"id": task})}
        _must(writers["Returned"] != killed, "the killed worker finished the deployment")
        self.say(f"\n  The pipeline: 2 requests with the key {asked[0][1]},")
        self.say(f"  1 deployment, {self.pipeline.deployments[0].run}.")

    def _show_rows(self, task: str) -> None:
        rows = self.db.rows(ROWS, {"id": task})
        _must(len(rows) == 1, f"there are {len(rows)} deployments")
        row = rows[0]
        _must(len({row[name] for name in ("deployments", "agent_events", "agent_tasks")}) == 1, "not one transaction")
        self.say(f"\n5. Another worker has finished. Committed together, in transaction {row['deployments']}:")
        self.say(f"  deployments   {row['repository']} {row['tag']}, {row['run']}: {row['summary']}")
        self.say(f"  agent_events  {row['seq']} Returned")
        self.say(f"  agent_tasks   {row['status']}, step {row['current_step']}")

    def _result(self, task: str, question: EmailMessage) -> None:
        _until(lambda: self._status(task) == "done", f"task {task} to be done")
        message = self.mail.wait(2, timeout=PATIENCE_S)[1]
        self.say("\n6. The result is mailed, as an answer to the question.")
        self._show_mail(message)
        _must(message["In-Reply-To"] == question["Message-ID"], "the result does not answer the question")
        _must(str(question["Message-ID"]) in str(message["References"]), "the result does not refer to the question")

    def _show_timeline(self, task: str) -> None:
        self.say(f"\nThe log of task {task}, with seconds and the last digits of the worker:")
        for row in self.db.rows(TIMELINE, {"id": task}):
            line = (
                f"{row['seq']:>3} {row['after']:>5.1f} {row['worker'][-6:]} {row['type']:<13} {short(row['data'], 80)}"
            )
            self.say(line)

    def _show_mail(self, message: EmailMessage) -> None:
        for name in ("To", "Subject", "Message-ID", "In-Reply-To"):
            if message[name]:
                self.say(f"  {name}: {message[name]}")
        for line in person.text_of(message).strip().splitlines():
            self.say(f"  | {line}")

    def _status(self, task: str) -> Any:
        row = self.db.rows("SELECT status, waiting_for, reason FROM agent_tasks WHERE id = %(id)s", {"id": task})[0]
        ended = row["status"] in ("failed", "cancelled", "quarantined") or row["waiting_for"] in ("operator", "settle")
        _must(not ended, f"task {task} came to {row}")
        return row["status"]

    def _log_length(self, task: str) -> int:
        return len(self.db.rows(TIMELINE, {"id": task}))


def _must(true: bool, otherwise: str) -> None:
    if not true:
        raise DemoFailed(otherwise)


def _until(true: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        _must(time.monotonic() < deadline, f"waited {PATIENCE_S:g} s in vain for {what}")
        time.sleep(0.05)
