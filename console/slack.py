"""`/slack/events`, `/slack/interactivity` and `/slack/commands`: one verifier, one rule for who may, one intake.

Slack waits three seconds. A message is acknowledged after it is stored and never before: one that takes longer than
ACK_S is answered with 503, goes on, and is found when Slack sends it again. Clicks and commands are not repeated, so
they are answered in any case, and what came of a click is told to whoever clicked, and to nobody else. A user is known
by the explicit map of `TEAM/USER` to an address; who is not in it, or deactivated in it, is refused, and a row of
`arrivals` says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import httpx2
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from triggers import slack
from triggers.adapter import Received, Unverified
from triggers.body import read
from triggers.envelope import Arrived, Verdict
from triggers.problem import Problem
from triggers.proofs import Signed
from triggers.schemes import SLACK
from triggers.slack import Challenge, Clicked, Commanded, Heard
from twelvefold.text import inspect_json
from workers.answers import Reply, answer
from workers.card import Card
from workers.decisions import OTHER_WAYS, Answer, Wish, decide
from workers.decisions import Refused as NotDecided
from workers.operate import Refused as NotDone
from workers.store import conversations
from workers.store.inbox import Entry
from workers.telemetry import kind_of

from .edge import Edge

SOURCE = "slack"
ACK_S = 2.0
AT_ONCE = 50
BUSY = Problem(503, "Not stored", "It could not be stored, and nothing was begun. Send it again.", {"Retry-After": "5"})
LATE = "This takes longer than usual. Send it again only if nothing has come of it in a few minutes."
NOT_YOU = "You cannot do that from Slack here: your account belongs to nobody we know. Ask whoever runs the agent."
Act = Callable[[Received, str], Response]
DECIDE: dict[slack.Choice, Answer] = {"approve": "approved", "reject": "rejected", "ask": "more_info"}


def routes(held: Edge) -> list[Route]:
    """The routes; none where no signing secret is set, so that there is no open door."""
    secrets = tuple(secret.get_secret_value() for secret in held.settings.slack_signing_secrets)
    if not secrets:
        return []
    desk = Desk(held, Signed(SOURCE, secrets, (SLACK,)))
    ways: dict[str, tuple[Act, Callable[[], Response]]] = {
        "events": (desk.event, BUSY.answer), "interactivity": (desk.click, Response),
        "commands": (desk.command, lambda: _only_you(LATE)),
    }  # fmt: skip
    return [Route(f"/slack/{name}", desk.endpoint(*way), methods=["POST"]) for name, way in ways.items()]


class Desk:
    """Takes what Slack sends. One for a process; `close` waits for nothing."""

    def __init__(self, held: Edge, verifier: Signed) -> None:
        self._held, self._verifier = held, verifier
        self._people = held.settings.slack_users
        self._telling = ThreadPoolExecutor(1, thread_name_prefix="slack")
        self._under_way: set[asyncio.Task[Response]] = set()

    def endpoint(self, act: Act, late: Callable[[], Response]) -> Callable[[Request], Awaitable[Response]]:
        """An endpoint: size, signature, then `act(received, proof)` in a thread; `late` when that takes its time."""

        async def answered(request: Request) -> Response:
            try:
                limit = self._held.settings.webhook_max_body
                raw = await read(request, limit)
                received = Received(SOURCE, raw, tuple(request.headers.items()), datetime.now(UTC), limit)
                proof = self._verifier.verify(received)
                if len(self._under_way) >= AT_ONCE:
                    raise BUSY
                return await self._soon(asyncio.create_task(run_in_threadpool(act, received, proof)), late)
            except Unverified as error:
                return Problem(401, "Signature not verified", error.reason).answer()
            except Problem as problem:
                return problem.answer()
            except ClientDisconnect:
                return Response(status_code=400)
            except Exception:  # told when it was done
                return BUSY.answer()

        return answered

    async def _soon(self, work: asyncio.Task[Response], late: Callable[[], Response]) -> Response:
        self._under_way.add(work)
        work.add_done_callback(self._done)
        await asyncio.wait({work}, timeout=ACK_S)
        return work.result() if work.done() else late()

    def _done(self, work: asyncio.Task[Response]) -> None:
        self._under_way.discard(work)
        if not work.cancelled() and (error := work.exception()) is not None and not isinstance(error, Problem):
            self._held.log.error("slack_failed", error=kind_of(error))  # its text may quote a row

    def event(self, received: Received, proof: str) -> Response:
        """A message of somebody, or the question whether we are here."""
        heard = slack.event(received, self._held.settings.slack_app_id)
        if isinstance(heard, Challenge):
            return JSONResponse({"challenge": heard.text})
        if heard is not None:
            self._hear(heard, received, proof)
        return Response()

    def _hear(self, heard: Heard, received: Received, proof: str) -> None:
        tenant, known = self._held.settings.tenant, None
        if heard.reply or heard.change != "new":
            posted = f"{heard.channel}:{heard.conversation.rpartition(':')[2]}"
            known = conversations.task_of(self._held.db, tenant, heard.conversation, posted, SOURCE)
        if known is None and (heard.change != "new" or not heard.addressed):
            return  # people among themselves
        by, why = self._who(heard.user)
        if by is None:
            self._refuse(heard.key, heard.user, why, proof, heard.conversation)
        elif known is None:
            self._open(heard.key, slack.MESSAGE, heard, by, received, proof)
        elif heard.change == "deleted":
            self._deleted(known["task"], known["key"], heard, by)
        else:
            self._reply(known["task"], known["agent"], heard, by, f"{proof} {heard.user}")

    def _reply(self, task: str, agent: str, heard: Heard, by: str, proof: str) -> None:
        """What is said in the thread of a task answers its question, or is news for it."""
        text = heard.text if heard.change == "new" else f"(edited) {heard.text}"
        try:
            answer(self._held.db, Reply(task, text, by, "session", tenant=self._held.settings.tenant))
        except NotDecided as refused:
            if refused.kind != "unfit":
                said = inspect_json({"text": slack.escaped(text)})
                self._held.intake.message(
                    task, source=SOURCE, key=heard.key, text=said.value["text"], sender=by, proof=proof,
                    cleaned=said.changed,
                )  # fmt: skip
        self._held.bell.ring(task, agent, "answers")

    def _deleted(self, task: str, opened_by: str, heard: Heard, by: str) -> None:
        """Who takes back the message that opened a task takes back the task."""
        if heard.key.startswith(f"{opened_by}:") and opened_by:
            try:
                self._held.operate.cancel(task, by=by, reason="the request was deleted")
            except NotDone:
                return
            self._held.bell.ring(task, SOURCE, "answers")

    def _open(
        self, key: str, type: str, said: Heard | Commanded, by: str, received: Received, proof: str
    ) -> Verdict:  # fmt: skip
        payload = inspect_json({"text": said.text, "subject": "", "sender": by})
        own = f"{type} {said.channel}" if isinstance(said, Heard) else type
        bound = own if self._held.agents.bound(SOURCE, own) else type
        verdict = self._held.intake.accept(Arrived(
            tenant=self._held.settings.tenant, source=SOURCE, key=key, type=bound, payload=payload.value,
            raw=received.raw, headers={}, sender=by, conversation=said.conversation, proof=f"{proof} {said.user}",
            cleaned=payload.changed,
        ))  # fmt: skip
        if verdict.outcome == "accepted" and verdict.task_id is not None:
            self._held.bell.ring(verdict.task_id, SOURCE)
        return verdict

    def command(self, received: Received, proof: str) -> Response:
        """A slash command opens a task; the answer is for whoever typed it alone."""
        said = slack.command(received)
        if said is None:
            return Response()
        by, why = self._who(said.user)
        if by is None:
            self._refuse(said.key, said.user, why, proof, said.conversation)
            return _only_you(NOT_YOU)
        verdict = self._open(said.key, said.command, said, by, received, proof)
        if verdict.outcome == "ignored":
            return _only_you(f"Nobody here takes {said.command}.")
        if verdict.outcome == "failed":
            return _only_you("That could not be understood. It is kept, and whoever runs the agent is told.")
        return _only_you(f"Taken: task {verdict.task_id}.")

    def click(self, received: Received, proof: str) -> Response:
        """A button decides as the page and the API do; what came of it is told to whoever clicked."""
        for clicked in slack.clicks(received):
            try:
                said = self._decide(clicked, proof)
            except Exception as error:
                self._held.log.error("slack_click_failed", error=kind_of(error))
                said = "Nothing is decided: something is out of order here. Click again in a minute."
            if clicked.answer_to.startswith(self._held.settings.slack_answers):
                self._telling.submit(self._tell, clicked.answer_to, said)
        return Response()

    def _decide(self, clicked: Clicked, proof: str) -> str:
        tenant = self._held.settings.tenant
        by, why = self._who(clicked.user)
        if by is None:
            self._refuse(clicked.key, clicked.user, why, proof)
            return NOT_YOU
        letter = conversations.letter(self._held.db, tenant, clicked.letter)
        if letter is None or letter["card"] is None:
            return "There is nothing to decide here any more."
        card = Card.model_validate(letter["card"])
        if card.cut and clicked.choice == "approve":
            return f"What was cut cannot be approved from here. {OTHER_WAYS}"
        wish = Wish(
            card.task, card.call, DECIDE[clicked.choice], by, "session", tenant=tenant, asked=card.asked,
            digest=card.digest, comment=clicked.comment, seen=letter["seq"],
        )  # fmt: skip
        try:
            decision = decide(self._held.db, wish)
        except NotDecided as refused:
            if refused.code == 403:
                self._refuse(clicked.key, clicked.user, "not_asked", proof)
            return str(refused)
        self._held.bell.ring(card.task, card.agent, "answers")
        return f"This was {decision}."

    def _who(self, user: str) -> tuple[str | None, str]:
        """The name of a Slack user here, or None and why there is none."""
        name = self._people.get(user)
        if name is not None:
            return name, ""
        if user in self._people:
            return None, "deactivated"
        team = user.partition("/")[0]
        return None, "unknown_user" if any(known.startswith(f"{team}/") for known in self._people) else "foreign_team"

    def _refuse(self, key: str, user: str, why: str, proof: str, conversation: str | None = None) -> None:
        entry = Entry(
            tenant=self._held.settings.tenant, source=SOURCE, key=key, kind="message", sender=user, proof=proof,
            conversation=conversation,
        )  # fmt: skip
        self._held.intake.ignore(entry, why)
        self._held.log.warning("slack_refused", why=why)

    def _tell(self, address: str, said: str) -> None:
        """Best effort: Slack takes it for 30 minutes, and the letter itself is changed by delivery."""
        body = {"response_type": "ephemeral", "replace_original": False, "text": slack.escaped(said)}
        try:
            with httpx2.Client(timeout=5, follow_redirects=False, trust_env=False) as client:
                client.post(address, json=body)
        except (httpx2.HTTPError, ValueError) as error:
            self._held.log.warning("slack_untold", error=kind_of(error))


def _only_you(text: str) -> Response:
    return JSONResponse({"response_type": "ephemeral", "text": text})
