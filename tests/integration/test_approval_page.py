"""The page that a mail's link opens: opening it decides nothing, and what it decides is what it showed, once."""

from __future__ import annotations

import re
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import pytest
from starlette.applications import Starlette

from console import approve
from console.page import POLICY
from tests.agents.signoff.tools import Ship
from tests.asked import LINK, SECRET, URL, Asked, asked, at_once, digest, fields, tags
from tests.hands import together
from workers.card import LONGEST_ARGUMENTS
from workers.decisions import ATTEMPTS, Wish, decide
from workers.links import Link, Links
from workers.operate import Refused
from workers.store.database import Database
from workers.telemetry import logger

PEARS = Ship(item="a box of pears")
NOBODY = "/a/v1.e30." + "A" * 43
SECRETIVE = {
    "cache-control": "no-store", "referrer-policy": "no-referrer", "x-content-type-options": "nosniff",
    "x-frame-options": "DENY", "x-robots-tag": "noindex, nofollow", "content-security-policy": POLICY,
}  # fmt: skip


def shipped(a: Asked) -> int:
    found = a.fleet.one("SELECT count(*) FROM notes")
    assert isinstance(found, int)
    return found


def late(a: Asked, column: str = "deadline") -> None:
    with a.fleet.run.db.connection() as connection:
        connection.execute(f"UPDATE approvals SET {column} = clock_timestamp() - interval '1 s'")


def row(a: Asked) -> dict[str, Any]:
    return a.fleet.run.db.rows("SELECT * FROM approvals ORDER BY asked DESC LIMIT 1")[0]


def token(a: Asked, **change: Any) -> str:
    """The path of a link like that in the mail, but for what is changed, signed as ours are."""
    links = Links(URL, [SECRET.get_secret_value()])
    link = links.read(a.path().removeprefix("/a/"))
    return links.address(Link(**{**link.model_dump(), **change})).removeprefix(URL)


def test_the_page_shows_the_card_and_a_form_with_nothing_chosen(fresh_database: Any) -> None:
    with asked(fresh_database, PEARS) as a:
        answer = a.get()
        assert answer.status_code == 200
        for text in ("item: a box of pears", "why: it is due", "ann@example.com, ben@example.com", "Until", "medium"):
            assert text in answer.text
        form = fields(answer.text)
        assert sorted(form) == ["comment", "decision", "digest", "seen", "word"]
        assert form["digest"]["value"] == row(a)["digest"]
        assert not any("checked" in found for _, found in tags(answer.text))
        assert a.word() not in answer.text, "the word stands in the mail alone"


def test_the_page_lets_a_browser_fetch_run_and_tell_nothing(fresh_database: Any) -> None:
    with asked(fresh_database, PEARS) as a:
        pages = [a.get(), a.get(NOBODY), a.post(word="WRONGS"), a.post(), a.all([("POST", a.path(), {"a": "b"})])[0]]
        for answer in pages:
            assert {name: answer.headers.get(name) for name in SECRETIVE} == SECRETIVE
            assert {name for name, _ in tags(answer.text)}.isdisjoint(
                {"script", "img", "link", "iframe", "a", "object"}
            )
            assert "http" not in answer.text, "it names no other address"
            assert "set-cookie" not in answer.headers
            assert LINK.search(answer.text) is None and a.path() not in answer.text
        for directive in ("default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'"):
            assert directive in POLICY
        assert "script" not in POLICY and "unsafe" not in POLICY


def test_nothing_but_a_post_changes_anything(fresh_database: Any) -> None:
    with asked(fresh_database, PEARS) as a:
        before, path = a.dump(), a.path()
        answers = a.all([("GET", path, None)] * 100)
        assert [answer.status_code for answer in answers] == [200] * 100
        assert len({answer.text for answer in answers}) == 1
        others = [("HEAD", path), ("OPTIONS", path), ("PUT", path), ("DELETE", path), ("GET", NOBODY), ("HEAD", NOBODY)]
        assert [r.status_code for r in a.all([(m, p, None) for m, p in others])] == [200, 405, 405, 405, 404, 404]
        assert a.get(f"{path}?decision=approve&word={a.word()}").status_code == 200
        prefetch = {"Sec-Purpose": "prefetch", "Purpose": "prefetch"}
        assert a.all([("GET", path, None)], **prefetch)[0].status_code == 200
        assert a.dump() == before
        assert a.rung == []


@pytest.mark.parametrize("risk", ["low", "medium", "high"])
def test_a_scanner_that_submits_what_it_sees_decides_nothing_above_low_risk(fresh_database: Any, risk: Any) -> None:
    with asked(fresh_database, PEARS.model_copy(update={"risk": risk})) as a:
        before, found = a.dump()["agent_tasks"], a.get().text
        sent = [field for field in fields(found).values() if field.get("type") != "radio"]  # none is checked
        form = {str(field["name"]): field.get("value") or "" for field in sent}
        a.all([("POST", a.path(), form)] * 2)
        assert row(a)["state"] == "pending", "nothing is chosen beforehand"
        known = {"digest": digest(found) or row(a)["digest"], "word": "BCDFGH", "comment": "", "seen": "9"}
        a.all([("POST", a.path(), {**form, **known, "decision": choice}) for choice in ("approve", "reject")])
        assert row(a)["state"] == ("pending" if risk != "low" else row(a)["state"])
        assert (a.dump()["agent_tasks"] == before) == (risk != "low")


def test_an_approval_lets_the_call_run_and_says_who_and_when(fresh_database: Any) -> None:
    with asked(fresh_database, PEARS) as a:
        answer = a.post(comment="go on\x00")
        assert answer.status_code == 200
        found = row(a)
        assert (found["state"], found["decided_by"], found["decided_how"]) == ("approved", "ann@example.com", "link")
        assert found["comment"] == "go on\ufffd"
        said = f"This was approved by ann@example.com at {found['decided_at']:%Y-%m-%d %H:%M:%S} UTC."
        assert said in answer.text and "<form" not in answer.text
        assert a.rung == [(a.task, "signoff", "answers")]
        assert a.fleet.drain(a.task) == "done" and shipped(a) == 1
        again = a.get()
        assert again.status_code == 200 and said in again.text, "the link still shows what became of it"


def test_a_rejection_is_a_decision_too(fresh_database: Any) -> None:
    with asked(fresh_database, PEARS) as a:
        assert "This was rejected by ben@example.com" in a.post("ben@example.com", decision="reject").text
        assert a.fleet.drain(a.task) == "done" and shipped(a) == 0


def test_a_low_risk_needs_no_word(fresh_database: Any) -> None:
    with asked(fresh_database, PEARS.model_copy(update={"risk": "low"})) as a:
        assert "word" not in fields(a.get().text) and "word" not in a.text()
        assert a.post().status_code == 200
        assert row(a)["state"] == "approved"


def test_a_high_risk_is_not_decided_by_a_link_whatever_is_sent(fresh_database: Any) -> None:
    with asked(fresh_database, PEARS.model_copy(update={"risk": "high"})) as a:
        found = a.get()
        assert found.status_code == 200 and "a link is not enough" in found.text and "<form" not in found.text
        assert "twelvefold approve" in found.text
        links = Links(URL, [SECRET.get_secret_value()])
        word = links.word(links.read(a.path().removeprefix("/a/")))
        assert a.post(word=word, digest=row(a)["digest"], seen="9").status_code == 403
        assert row(a)["state"] == "pending" and row(a)["wrong_words"] == {}
        a.fleet.operate.decide(a.task, row(a)["call"], approved=True, by="ann@example.com")
        assert row(a)["decided_how"] == "session"


def test_fifty_identical_posts_have_one_effect_and_one_answer(fresh_database: Any) -> None:
    with asked(fresh_database, PEARS) as a:
        post = ("POST", a.path(), a.form())
        answers = a.all([post] * 50)
        assert [answer.status_code for answer in answers] == [200] * 50
        assert len({answer.text for answer in answers}) == 1
        assert a.fleet.one("SELECT count(*) FROM arrivals WHERE kind = 'decision' AND state = 'accepted'") == 1
        assert a.fleet.drain(a.task) == "done" and shipped(a) == 1
        assert a.fleet.kinds(a.task).count("ApprovalMoved") == 1
        assert a.all([post])[0].text == answers[0].text, "and the same afterwards"


def test_of_an_approval_and_a_rejection_at_once_one_decides_and_the_other_learns_who_and_when(
    fresh_database: Any,
) -> None:
    with asked(fresh_database, PEARS) as a:
        call = row(a)["call"]
        mine, ben = a.form(), a.form("ben@example.com", decision="reject")
        said = together(
            lambda: a.all([("POST", a.path(), mine), ("POST", a.path("ben@example.com"), ben)] * 5),
            lambda: a.fleet.operate.decide(a.task, call, approved=False, by="ben@example.com"),
        )
        found = row(a)
        won = f"{found['state']} by {found['decided_by']} at {found['decided_at']:%Y-%m-%d %H:%M:%S} UTC"
        codes = [answer.status_code for answer in said[0]]
        assert codes == ([200, 409] if found["state"] == "approved" else [409, 200]) * 5
        assert all(won in answer.text for answer in said[0])
        assert str(said[1]) == won if found["state"] == "rejected" else isinstance(said[1], Refused)
        assert a.fleet.one("SELECT count(*) FROM arrivals WHERE kind = 'decision' AND state = 'accepted'") == 1
        a.fleet.drain(a.task)
        assert a.fleet.kinds(a.task).count("ApprovalMoved") == 1
        assert shipped(a) == (found["state"] == "approved")


def test_another_answer_is_a_conflict_that_tells_who_and_when(fresh_database: Any) -> None:
    with asked(fresh_database, PEARS) as a:
        a.post()
        other = a.post("ben@example.com", decision="reject", digest=row(a)["digest"], seen="9")
        assert other.status_code == 409
        assert "Already approved by ann@example.com at " in other.text
        assert row(a)["state"] == "approved"


def test_wrong_words_are_counted_and_five_are_enough(fresh_database: Any) -> None:
    with asked(fresh_database, PEARS) as a:
        form = a.form()
        for left in range(ATTEMPTS - 1, -1, -1):
            answer = a.all([("POST", a.path(), {**form, "word": "WRONGS"})])[0]
            assert answer.status_code == 403 and f"{left} attempts are left" in answer.text
        answer = a.all([("POST", a.path(), form)])[0]
        assert answer.status_code == 403 and "decides nothing any more" in answer.text
        assert "twelvefold approve" in answer.text and row(a)["state"] == "pending"
        assert row(a)["wrong_words"] == {"ann@example.com": ATTEMPTS}
        assert a.get().status_code == 200
        assert a.post("ben@example.com").status_code == 200, "the other person's link still decides"


def test_many_guesses_at_once_are_no_more_than_five(fresh_database: Any) -> None:
    with asked(fresh_database, PEARS) as a:
        form, word = a.form(), a.word()
        guesses = [("POST", a.path(), {**form, "word": f"WRON{n:02}"}) for n in range(30)]
        answers = a.all(guesses)
        assert sum("attempts are left" in answer.text for answer in answers) == ATTEMPTS
        assert row(a)["wrong_words"] == {"ann@example.com": ATTEMPTS}
        assert a.all([("POST", a.path(), {**form, "word": word})])[0].status_code == 403
        assert row(a)["state"] == "pending"


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"decision": ""}, 400), ({"decision": "maybe"}, 400), ({"digest": ""}, 400), ({"seen": ""}, 400),
        ({"seen": "-1"}, 400), ({"digest": "other"}, 409), ({"word": ""}, 400), ({"comment": "x" * 20_000}, 413),
    ],
)  # fmt: skip
def test_a_form_that_is_not_whole_decides_nothing(fresh_database: Any, change: dict[str, str], status: int) -> None:
    with asked(fresh_database, PEARS) as a:
        assert a.post(**change).status_code == status
        assert row(a)["state"] == "pending" and a.rung == []
        assert row(a)["wrong_words"] == {}, "what is no guess is not counted as one"


def test_what_is_no_form_or_of_another_site_decides_nothing(fresh_database: Any) -> None:
    with asked(fresh_database, PEARS) as a:
        form = a.form()
        post = ("POST", a.path(), form)
        for headers in (
            {"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"},
            {"Origin": URL + ".evil.example"},
        ):  # fmt: skip
            assert a.all([post], **headers)[0].status_code == 403
        assert a.all([post], **{"Content-Type": "application/json"})[0].status_code == 415
        twice: Any = {**form, "decision": ["approve", "reject"]}
        assert a.all([("POST", a.path(), twice)])[0].status_code == 400
        assert a.all([("POST", a.path(), {f"f{n}": "x" for n in range(50)})])[0].status_code == 400
        assert row(a)["state"] == "pending"
        for headers in ({"Origin": "null", "Sec-Fetch-Site": "same-origin"}, {"Origin": URL}):
            assert a.all([post], **headers)[0].status_code == 200


def test_a_forged_or_foreign_link_is_nothing_and_tells_nothing(fresh_database: Any) -> None:
    with asked(fresh_database, PEARS) as a:
        forged = a.path()[:-1] + ("A" if a.path()[-1] != "A" else "B")
        other = "018f0000-0000-7000-8000-000000000001"
        paths = [NOBODY, forged, "/a/x", "/a/" + "x" * 9000]
        # what is signed, yet names what is not there: another tenant, task, call, question, approver
        paths += [token(a, **change) for change in (
            {"tenant": "t2"}, {"task": other}, {"call": 99}, {"asked": 99}, {"approver": "eve@example.com"},
        )]  # fmt: skip
        form = a.form()
        answers = a.all([("GET", path, None) for path in paths] + [("POST", path, form) for path in paths])
        assert [answer.status_code for answer in answers] == [404] * len(answers)
        assert len({answer.text for answer in answers}) == 1
        assert "pears" not in answers[0].text and "signoff" not in answers[0].text
        assert row(a)["state"] == "pending"


def test_an_expired_link_is_gone_and_tells_nothing(fresh_database: Any) -> None:
    with asked(fresh_database, PEARS) as a:
        old, form = token(a, expires=1), a.form()
        for answer in a.all([("GET", old, None), ("POST", old, form)]):
            assert answer.status_code == 410 and "pears" not in answer.text and "signoff" not in answer.text
        assert row(a)["state"] == "pending"
        links = Links(URL, [SECRET.get_secret_value()])
        link = links.read(a.path().removeprefix("/a/"))
        assert timedelta(seconds=link.expires - row(a)["deadline"].timestamp()) <= timedelta(days=1)


def test_a_question_past_its_deadline_is_gone_and_expired_is_not_rejected(fresh_database: Any) -> None:
    with asked(fresh_database, PEARS) as a:
        form = a.form()
        late(a)
        for answer in a.all([("GET", a.path(), None), ("POST", a.path(), form)]):
            assert answer.status_code == 410 and "expired" in answer.text and "<form" not in answer.text
        assert row(a)["state"] == "pending", "only the reducer moves it"


def test_a_question_of_a_task_that_ended_is_gone(fresh_database: Any) -> None:
    with asked(fresh_database, PEARS) as a:
        form = a.form()
        a.fleet.operate.cancel(a.task, by="ann")
        assert a.fleet.drain(a.task) == "cancelled"
        for answer in a.all([("GET", a.path(), None), ("POST", a.path(), form)]):
            assert answer.status_code == 410 and "superseded" in answer.text
        assert shipped(a) == 0


def test_what_was_approved_too_late_to_run_is_asked_anew_and_the_old_link_is_gone(fresh_database: Any) -> None:
    with asked(fresh_database, PEARS) as a:
        old, form = a.path(), a.form()
        assert a.post().status_code == 200
        late(a, "valid_until")
        assert a.fleet.drain(a.task) == "waiting"
        a.deliver()
        assert a.path() != old, "a new question, a new link"
        gone, again = a.all([("POST", old, form), ("GET", a.path(), None)])
        assert gone.status_code == 410 and "stale" in gone.text
        assert again.status_code == 200 and row(a)["state"] == "pending"
        assert a.post().status_code == 200
        assert a.fleet.drain(a.task) == "done" and shipped(a) == 1


def test_what_was_cut_cannot_be_approved_from_the_page(fresh_database: Any) -> None:
    with asked(fresh_database, PEARS.model_copy(update={"item": "x" * LONGEST_ARGUMENTS})) as a:
        assert LINK.search(a.text()) is None, "the mail has no link"
        seq = a.fleet.run.db.rows("SELECT task_id::text, call, asked FROM approvals")[0]
        links = Links(URL, [SECRET.get_secret_value()])
        link = Link(
            tenant="t1", task=a.task, call=seq["call"], asked=seq["asked"], approver="ann@example.com",
            expires=2**40,
        )  # fmt: skip
        path = links.address(link).removeprefix(URL)
        found = a.get(path)
        assert found.status_code == 200 and "<form" not in found.text and "had to be cut" in found.text
        form = {"decision": "approve", "digest": row(a)["digest"], "word": links.word(link), "seen": "9"}
        assert a.all([("POST", path, form)])[0].status_code == 403
        assert row(a)["state"] == "pending"


def test_text_of_a_call_is_text_on_the_page(fresh_database: Any) -> None:
    evil = "</pre></section><form action='https://evil.example'><input name=word value=x><script>1</script>\u202e"
    with asked(fresh_database, PEARS.model_copy(update={"item": evil, "why": evil})) as a:
        plain = [tag for tag, _ in tags(a.get().text)]
    with asked(fresh_database, PEARS) as a:
        assert [tag for tag, _ in tags(a.get().text)] == plain


def test_a_message_that_the_page_did_not_show_asks_for_another_look(fresh_database: Any) -> None:
    evil = "Stop! <b>x</b> https://evil.example"
    with asked(fresh_database, PEARS) as a:
        form = a.form()
        a.fleet.intake.message(a.task, source="test", key="m", text=evil, sender="cid@example.com")
        for _ in ("not read by the task yet", "read"):
            answer = a.all([("POST", a.path(), form)])[0]
            assert answer.status_code == 409 and "Somebody wrote" in answer.text
            assert row(a)["state"] == "pending" and row(a)["wrong_words"] == {}
            assert a.fleet.drain(a.task) in ("waiting", "nothing")
        found = a.get().text
        assert "Written since it asked" in found and "cid@example.com" in found
        assert "Stop! &lt;b&gt;x&lt;/b&gt; https[:]//evil[.]example" in found
        assert a.post().status_code == 200, "who has read it decides"


def test_only_those_who_are_asked_decide(fresh_database: Any) -> None:
    with asked(fresh_database, PEARS) as a:
        call, decide = row(a)["call"], a.fleet.operate.decide
        with pytest.raises(Refused, match="not among those") as refused:
            decide(a.task, call, approved=True, by="eve@example.com")
        assert refused.value.code == 403 and row(a)["state"] == "pending"
        assert decide(a.task, call, approved=True, by="BEN@example.com").by == "BEN@example.com"
        with pytest.raises(Refused, match="not among those"):
            decide(a.task, call, approved=True, by="eve@example.com")
        assert decide(a.task, call, approved=True, by="root", proof="override").by == "BEN@example.com"


def test_nobody_decides_about_another_tenants_task(fresh_database: Any) -> None:
    with asked(fresh_database, PEARS) as a:
        for tenant, code in (("t2", 404), ("t1", 0)):
            wish = Wish(a.task, row(a)["call"], "approved", "ann@example.com", "session", tenant=tenant)
            with nullcontext() if not code else pytest.raises(Refused, check=lambda error: error.code == 404):
                decide(a.fleet.run.db, wish)
            assert row(a)["state"] == ("pending" if code else "approved")


def test_a_database_that_is_away_gives_a_page_and_its_error_no_text(capfd: pytest.CaptureFixture[str]) -> None:
    db, links = Database("postgresql://nobody:hushhush@127.0.0.1:1/x"), Links(URL, [SECRET.get_secret_value()])
    link = Link(tenant="t1", task="t", call=1, asked=1, approver="ann@example.com", expires=2**40)
    rung: list[Any] = []
    app = Starlette(routes=approve.routes(db, links, lambda *told: rung.append(told), logger()))
    form = {"decision": "approve", "digest": "d", "seen": "0", "word": links.word(link)}
    for method, data in (("GET", None), ("POST", form)):
        answer = at_once(app, [(method, links.address(link).removeprefix(URL), data)])[0]
        assert answer.status_code == 503 and answer.headers["cache-control"] == "no-store"
    logged = "".join(capfd.readouterr())
    assert logged.count("approval_page_failed") == 2
    for secret in ("hushhush", "Traceback", "ann@example.com", links.word(link)):
        assert secret not in logged
    assert rung == []


def test_without_a_public_address_there_are_no_links_and_no_page(fresh_database: Any) -> None:
    with asked(fresh_database, PEARS, links=False) as a:
        assert LINK.search(a.text()) is None and re.search(r"https?://", a.text()) is None
        assert f"twelvefold approve {a.task}" in a.text()
        assert a.app.routes == []
