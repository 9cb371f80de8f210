"""Slack against a strict server: within every limit, once though answers are lost, in its thread, and no mention."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from delivery.blocks import messages, texts
from delivery.markdown import fenced
from delivery.slack import MOST_MESSAGES, PERMANENT, SlackChannel
from tests.agents.signoff.tools import Ship
from tests.asked import SECRET, URL, Mailbox
from tests.fakes.slack import FakeSlack, _check
from tests.hands import once
from tests.harness import Fleet, fleet
from twelvefold import Done, Text
from twelvefold.bindings import to
from twelvefold.errors import DeclarationError
from twelvefold.ports import Channel, Letter, NotSent, PerhapsSent
from workers.relay import deliver
from workers.store import sweeps

AT = datetime(2023, 11, 14, tzinfo=UTC)
LETTER = Letter("d-1", "slack", "C1", "pay: done", "paid\n", AT, source="# pay: done\n\npaid\n")
texts_ = st.text(st.characters(exclude_categories=["Cs"]), max_size=40) | st.text("<>!@#&|`~*_[]()\n a:/", max_size=40)


@pytest.fixture
def slack() -> Iterator[FakeSlack]:
    with FakeSlack() as made:
        yield made


@pytest.fixture
def way(slack: FakeSlack) -> SlackChannel:
    return SlackChannel(slack.token, url=slack.url, timeout=5)


@settings(deadline=None, max_examples=50)
@given(texts_, st.sampled_from([1, 2, 90]))
@example("<!channel> <@U1> &amp; ```", 200)
@example("\U0001f600&<", 1500)
def test_no_text_breaks_a_block_or_mentions_anybody(text: str, times: int) -> None:
    for source in (text * times, fenced(text * times), f"[{text}](https://evil.example/x) {text * times}"):
        for blocks in messages(source):
            _check("x", blocks)
    for piece in texts(text * times):
        _check(piece, [])


def test_b121_a_long_report_arrives_whole_in_order_and_each_message_is_taken(
    slack: FakeSlack, way: SlackChannel
) -> None:
    lines = [f"line {number} <&> {'x' * 60}" for number in range(480)]
    source = f"# Report\n\n{'word ' * 1100}\n\n{fenced(chr(10).join(lines))}\n\nthe end\n"
    assert len(source) > 40_000
    way.push(replace(LETTER, source=source))
    said = slack.of("C1")
    assert 4 <= len(said) <= MOST_MESSAGES and {m.thread_ts for m in said[1:]} == {said[0].ts}
    shown = "\n".join(m.shown for m in said).replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    assert re.findall(r"line \d+ <&> x{60}", shown) == lines and "the end" in shown
    assert shown.count("word") == 1100


def test_what_takes_too_many_messages_is_a_file_below_its_beginning(slack: FakeSlack, way: SlackChannel) -> None:
    source = fenced("\n".join(f"line {number} {'x' * 60}" for number in range(3000)))
    way.push(replace(LETTER, source=source))
    first, file = slack.of("C1")
    assert file.thread_ts == first.ts and slack.files[file.files[0]["id"]] == f"d-1.md\0{source}"
    assert way.find(replace(LETTER, source=source)) is not None and len(slack.of("C1")) == 2


@pytest.mark.parametrize("word", ["msg_blocks_too_long", "invalid_blocks"])
def test_what_slack_takes_no_blocks_of_goes_out_as_text(slack: FakeSlack, way: SlackChannel, word: str) -> None:
    slack.errors["chat.postMessage"] = [word]
    way.push(replace(LETTER, text="a <@U1> b\n" * 600))
    shown = "".join(m.text for m in slack.of("C1"))
    assert shown.count("a &lt;@U1&gt; b") == 600 and len(slack.of("C1")) > 1


def test_b124_a_message_whose_answer_was_lost_is_found_and_not_posted_again(
    slack: FakeSlack, way: SlackChannel
) -> None:
    for number in range(7):  # it is not on the first page
        way.push(replace(LETTER, id=f"other-{number}"))
    slack.lose.append("chat.postMessage")
    with pytest.raises(PerhapsSent):
        way.push(LETTER)
    for number in range(7, 14):
        way.push(replace(LETTER, id=f"other-{number}"))
    found = way.find(LETTER)
    mine = [m for m in slack.said if m.metadata["event_payload"]["delivery_id"] == "d-1"]
    assert len(mine) == 1 and found is not None and found.reference == f"C1:{mine[0].ts}"
    assert way.find(replace(LETTER, id="d-2")) is None


def test_a_letter_that_broke_off_in_the_middle_is_made_whole(slack: FakeSlack, way: SlackChannel) -> None:
    long = replace(LETTER, source=fenced("\n".join(f"line {n} {'x' * 60}" for n in range(400))))
    slack.errors["conversations.replies"] = []
    parts = len(messages(long.source))
    assert parts > 2
    way.push(replace(LETTER, id="before"))
    slack.lose.append("chat.postMessage")
    with pytest.raises(PerhapsSent):
        way.push(long)
    assert way.find(long) is not None
    numbers = [
        m.metadata["event_payload"]["part"] for m in slack.said if m.metadata["event_payload"]["delivery_id"] == "d-1"
    ]
    assert numbers == list(range(parts))


def test_too_many_requests_in_the_middle_are_told_as_partly_sent(slack: FakeSlack, way: SlackChannel) -> None:
    long = replace(LETTER, source=fenced("\n".join(f"line {n} {'x' * 60}" for n in range(400))))
    answer = slack.answer

    def once_only(method: str, given: Any, token: str) -> Any:
        slack.storm = 1.0 if len(slack.said) == 1 else 0.0
        return answer(method, given, token)

    slack.answer = once_only  # type: ignore[method-assign]
    with pytest.raises(NotSent) as refused:
        way.push(long)
    assert (refused.value.partly, refused.value.retry_after, refused.value.holds) == (True, 7.0, "channel")


@pytest.mark.parametrize("word", sorted(PERMANENT - {"no_text"}))
def test_b126_what_will_never_work_is_not_tried_again(slack: FakeSlack, way: SlackChannel, word: str) -> None:
    slack.errors["chat.postMessage"] = [word]
    with pytest.raises(NotSent) as refused:
        way.push(LETTER)
    assert not refused.value.retry and word in refused.value.reason and slack.token not in refused.value.reason


@pytest.mark.parametrize(
    ("word", "kind"), [("some_new_error", NotSent), ("internal_error", PerhapsSent), ("503", PerhapsSent)]
)
def test_other_errors_are_tried_again_and_those_that_say_nothing_are_in_doubt(
    slack: FakeSlack, way: SlackChannel, word: str, kind: type[Exception]
) -> None:
    slack.errors["chat.postMessage"] = [word]
    with pytest.raises(kind) as raised:
        way.push(LETTER)
    assert not isinstance(raised.value, NotSent) or raised.value.retry


def test_nobody_listening_is_certainly_not_sent() -> None:
    with pytest.raises(NotSent) as refused:
        SlackChannel("xoxb-1", url="http://127.0.0.1:1/api/", timeout=2).push(LETTER)
    assert refused.value.retry


def test_letters_go_to_a_thread_to_a_person_and_into_the_thread_of_the_first(
    slack: FakeSlack, way: SlackChannel
) -> None:
    first = way.push(LETTER)
    way.push(replace(LETTER, id="d-2", thread=first.reference))
    root = first.reference.partition(":")[2]
    way.push(replace(LETTER, id="d-3", recipient=f"C1:{root}"))
    assert [m.thread_ts for m in slack.of("C1")] == [None, root, root]
    way.push(replace(LETTER, id="d-4", recipient="U7"))
    way.push(replace(LETTER, id="d-5", recipient="U7"))
    assert len(slack.of("D7")) == 2 and slack.calls.count("conversations.open") == 1
    for place in ("ann@example.com", "#ops", "c1", "<!channel>", ""):
        with pytest.raises(NotSent) as refused:
            way.push(replace(LETTER, recipient=place))
        assert not refused.value.retry
        with pytest.raises(DeclarationError):
            to.slack(place)
    assert to.slack("C1:1700000001.000100").recipient == "C1:1700000001.000100"


def test_buttons_carry_the_letter_and_the_choice_alone_and_are_gone_after_the_decision(fresh_database: Any) -> None:
    people = "ann@example.com, u7@slack"
    ask = Ship(item="pears <!channel>", why="see https://evil.example", people=people)
    with FakeSlack() as slack, fleet(fresh_database, once(ask), public_url=URL, link_secrets=(SECRET,)) as f:
        way, box = SlackChannel(slack.token, url=slack.url, timeout=5), Mailbox()
        f.drain(f.open("signoff"))
        rows = f.run.db.rows("SELECT id::text, channel, recipient FROM outbox ORDER BY n")
        assert [(r["channel"], r["recipient"]) for r in rows] == [("email", "ann@example.com"), ("slack", "U7")]
        assert {deliver(r["id"], f.run, {"email": box, "slack": way}) for r in rows} == {"sent"}
        (card,) = slack.of("D7")
        id_ = rows[1]["id"]
        assert card.buttons == [f"{id_}:approve", f"{id_}:reject"]
        assert "pears &lt;!channel&gt;" in card.shown and "May decide" in card.shown
        receipt = f.one("SELECT receipt FROM outbox WHERE id = %(id)s", id=id_)
        assert receipt == f"D7:{card.ts}"
        card_row = f.run.db.rows("SELECT call, asked FROM approvals")[0]
        over = {"subject": "Over", "text": "This was approved by ann@example.com.\n", "over": card_row["asked"]}
        with f.run.db.connection() as connection:
            connection.execute("UPDATE paces SET free_at = clock_timestamp() - interval '1 s'")
        assert deliver(_after(f, id_, over), f.run, {"slack": way}) == "sent"
        (card,) = slack.of("D7")
        assert card.buttons == [] and "approved by ann@example.com" in card.shown


def _after(f: Fleet, letter: str, payload: dict[str, Any]) -> str:
    """One more letter of the same conversation."""
    with f.run.db.connection() as connection:
        row = connection.execute(
            "INSERT INTO outbox (id, tenant, task_id, seq, channel, recipient, conversation, n, key, payload)"
            " SELECT gen_random_uuid(), tenant, task_id, seq, channel, recipient, conversation, n + 10, key || 'x', %s"
            " FROM outbox WHERE id = %s RETURNING id::text",
            (json.dumps(payload), letter),
        ).fetchone()
    assert row is not None
    return str(row[0])


def test_a_storm_of_429_and_lost_answers_loses_and_doubles_nothing(fresh_database: Any, slack: FakeSlack) -> None:
    slack.storm = 0.25
    with fleet(fresh_database, lambda task: Done(outcome=Text(text="x"))) as f:
        way = SlackChannel(slack.token, url=slack.url, timeout=5)
        written = []
        for number in range(40):
            id_ = str(uuid4())
            written.append(id_)
            with f.run.db.connection() as connection:
                connection.execute(
                    "INSERT INTO outbox (id, tenant, task_id, seq, channel, recipient, conversation, n, key, payload)"
                    " VALUES (%(id)s, 't1', %(id)s, 1, 'slack', %(to)s, %(to)s, %(n)s, gen_random_uuid()::text,"
                    " %(payload)s)",
                    {
                        "id": id_,
                        "to": f"C{number % 4}",
                        "n": number,
                        "payload": json.dumps({"text": "hi", "subject": "x"}),
                    },
                )
        for turn in range(400):
            if turn % 7 == 0:
                slack.lose.append("chat.postMessage")
            for letter, _ in sweeps.letters(f.run.db, 10, 0):
                deliver(letter, f.run, {"slack": way})
            with f.run.db.connection() as connection:
                connection.execute(
                    "UPDATE outbox SET due_at = clock_timestamp() - interval '1 s' WHERE state = 'pending'"
                )
                connection.execute("UPDATE paces SET free_at = clock_timestamp() - interval '1 s'")
            if f.one("SELECT count(*) FROM outbox WHERE state <> 'sent'") == 0:
                break
        slack.lose.clear()
        posted = Counter(m.metadata["event_payload"]["delivery_id"] for m in slack.said)
        assert posted == Counter(written), "each once"
        for channel in range(4):
            came = [m.metadata["event_payload"]["delivery_id"] for m in slack.of(f"C{channel}")]
            assert came == [id_ for id_ in written if id_ in came], "in order"


def test_b126_an_archived_channel_is_tried_once_and_the_letter_goes_to_whoever_stands_in(
    fresh_database: Any, slack: FakeSlack
) -> None:
    places = {"slack:C1": "email:ann@example.com"}
    with fleet(fresh_database, lambda task: Done(outcome=Text(text="x")), fallbacks=places) as f:
        task = f.open()
        with f.run.db.connection() as connection:
            connection.execute(
                "INSERT INTO outbox (id, tenant, task_id, seq, channel, recipient, conversation, n, key, payload)"
                " VALUES (gen_random_uuid(), 't1', %s, 1, 'slack', 'C1', 'c', 0, 'k', %s)",
                (task, json.dumps({"subject": "x", "text": "hi"})),
            )
        slack.errors["chat.postMessage"] = ["is_archived"]
        box = Mailbox()
        ways: dict[str, Channel] = {"slack": SlackChannel(slack.token, url=slack.url, timeout=5), "email": box}
        states = []
        while rows := f.run.db.rows("SELECT id::text FROM outbox WHERE state = 'pending'"):
            states.append(deliver(rows[0]["id"], f.run, ways))
        assert states == ["failed", "sent"] and slack.calls == ["chat.postMessage"]
        assert box.letters[0].recipient == "ann@example.com" and "C1 (slack)" in box.letters[0].text
