"""A Write is performed exactly once, inside the commit, whatever comes between."""

from __future__ import annotations

from threading import Event
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from console.embedded import Postgres
from tests.agents.notes.tables import NoteRow
from tests.agents.notes.tools import KeepNote
from tests.hands import beside, change, counted, once, owner
from tests.harness import Fleet, fleet
from tests.proxy import Proxy
from twelvefold import Conflict, Fatal, Read, ToolError, Write
from twelvefold.events import Failed

TRIES: list[int] = []


class Note(Write[int]):
    """Keep a note after some trouble. Use in tests."""

    trouble: str = ""
    times: int = 1

    def write(self, db: Session) -> int:
        """Write first, so that there is something to undo."""
        db.add(NoteRow(text="kept", task_id=""))
        db.flush()
        TRIES.append(1)
        if len(TRIES) <= self.times:
            self._fail(db)
        return len(TRIES)

    def _fail(self, db: Session) -> None:
        match self.trouble:
            case "ToolError":
                raise ToolError("The book is full.", affected=("trouble",), suggestion="Take another book.")
            case "Conflict":
                raise Conflict("Somebody was quicker.")
            case "Fatal":
                raise Fatal("The book burned.", code="book")
            case "lost":
                db.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))
            case state if state:
                db.execute(text(f"DO $$ BEGIN RAISE SQLSTATE '{state}'; END $$"))


def _run(f: Fleet, trouble: str, times: int = 1) -> tuple[str, str]:
    """The task and its status after a Note with this trouble."""
    TRIES.clear()
    change(f, "notes", tools=[Note])
    task = f.open()
    return task, f.drain(task)


@pytest.mark.parametrize("trouble", ["ToolError", "23505", "42P01", "57014"])
def test_a_write_that_fails_wrote_nothing_and_the_model_reads_why(fresh_database: Any, trouble: str) -> None:
    with fleet(fresh_database, once(Note(trouble=trouble))) as f:
        task, status = _run(f, trouble)
        assert status == "done"
        failures = [e for e in f.events(task) if isinstance(e, Failed)]
        assert len(failures) == 1
        assert failures[0].call == 3
        if trouble == "ToolError":
            assert (failures[0].message, failures[0].suggestion) == ("The book is full.", "Take another book.")
        else:
            assert "Nothing was changed" in failures[0].message
        assert f.one("SELECT count(*) FROM notes") == 0
        assert len(TRIES) == 1


@pytest.mark.parametrize("trouble", ["Conflict", "40P01", "40001", "lost"])
def test_what_is_repeated_writes_once_and_asks_the_model_once(fresh_database: Any, trouble: str) -> None:
    with fleet(fresh_database, once(Note(trouble=trouble, times=3))) as f:
        model = counted(f)
        task, status = _run(f, trouble)
        assert status == "done"
        assert f.kinds(task).count("Returned") == 1
        assert f.one("SELECT count(*) FROM notes") == 1
        assert (len(TRIES), model.asked) == (4, 2)


@pytest.mark.parametrize("trouble", ["Conflict", "40P01", "40001"])
def test_a_write_in_the_way_of_others_is_a_tool_failure_after_five_tries(fresh_database: Any, trouble: str) -> None:
    with fleet(fresh_database, once(Note(trouble=trouble, times=99))) as f:
        task, status = _run(f, trouble)
        assert status == "done"
        assert f.kinds(task).count("Failed") == 1
        assert len(TRIES) == 5
        assert f.one("SELECT count(*) FROM notes") == 0


def test_what_no_model_can_mend_is_parked_with_its_code(fresh_database: Any) -> None:
    with fleet(fresh_database, once(Note(trouble="Fatal"))) as f:
        task, status = _run(f, "Fatal")
        row = f.row(task)
        assert (status, row["waiting_for"], row["reason"]) == ("waiting", "operator", "book")
        assert f.one("SELECT count(*) FROM notes") == 0
        f.operate.retry(task, by="ann")
        assert f.drain(task) == "done"


@pytest.mark.parametrize("state", ["40P01", "40001"])
def test_a_commit_in_the_way_of_others_repeats_with_the_same_happening(fresh_database: Any, state: str) -> None:
    once_only = f"""
        CREATE SEQUENCE blows; GRANT ALL ON blows TO PUBLIC;
        CREATE FUNCTION blow() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN IF nextval('blows') < 4 THEN RAISE SQLSTATE '{state}'; END IF; RETURN NEW; END $$;
        CREATE TRIGGER blow BEFORE INSERT ON agent_events FOR EACH ROW EXECUTE FUNCTION blow();
    """
    with fleet(fresh_database, once(KeepNote(text="kept"))) as f:
        owner(f, once_only, fresh_database.owner)
        model = counted(f)
        task = f.open()
        assert f.step(task) == "ready"
        assert model.asked == 1
        assert f.kinds(task) == ["Arrived", "ModelAsked", "Decided"]


@pytest.mark.parametrize("what", [b"COMMIT", b"INSERT INTO agent_events"])
def test_a_commit_whose_answer_is_lost_is_recognised_by_its_writer(
    fresh_database: Any, postgres: Postgres, what: bytes
) -> None:
    with Proxy(postgres.socket) as proxy, fleet(fresh_database, once(KeepNote(text="kept"))) as f:
        far = Fleet(proxy.url(fresh_database.app), once(KeepNote(text="kept")))
        model = counted(far)
        task = far.open()
        assert far.step(task) == "ready"
        rule = proxy.drop_answer_after(what)
        assert far.step(task) == ("ready")
        assert rule.fired
        assert f.kinds(task) == ["Arrived", "ModelAsked", "Decided", "Returned"]
        assert f.row(task)["worker_id"] is None
        assert far.drain(task) == "done"
        assert f.one("SELECT count(*) FROM notes") == 1
        assert model.asked == 2
        far.close()


def test_a_model_step_whose_commit_went_through_unheard_is_not_repeated(
    fresh_database: Any, postgres: Postgres
) -> None:
    with Proxy(postgres.socket) as proxy, fleet(fresh_database, once(KeepNote(text="kept"))) as f:
        far = Fleet(proxy.url(fresh_database.app), once(KeepNote(text="kept")))
        model = counted(far)
        task = far.open()
        rule = proxy.drop_answer_after(b"INSERT INTO agent_events")
        assert far.step(task) == "ready"
        assert rule.fired
        assert model.asked == 1
        assert f.kinds(task) == ["Arrived", "ModelAsked", "Decided"]
        far.close()


def test_a_commit_cut_before_it_arrives_is_repeated_without_asking_again(
    fresh_database: Any, postgres: Postgres
) -> None:
    with Proxy(postgres.socket) as proxy, fleet(fresh_database, once(KeepNote(text="kept"))) as f:
        far = Fleet(proxy.url(fresh_database.app), once(KeepNote(text="kept")))
        model = counted(far)
        task = far.open()
        far.step(task)
        rule = proxy.hold_next(b"COMMIT")
        with beside(lambda: far.step(task)) as left:
            rule.wait()
            proxy.cut()
            proxy.release()
        assert left == ["ready"]
        assert f.one("SELECT count(*) FROM notes") == 1
        assert f.kinds(task).count("Returned") == 1
        assert model.asked == 1
        far.close()


def test_a_worker_that_lost_its_claim_writes_nothing(fresh_database: Any) -> None:
    with fleet(fresh_database, once(KeepNote(text="kept"))) as f:
        model = counted(f)
        task = f.open()

        def overtaken(request: Any) -> Any:
            with f.run.db.connection() as connection:
                connection.execute("UPDATE agent_tasks SET fence = fence + 1 WHERE id = %s", (task,))
            return f.run.model._inner.ask(request)  # type: ignore[attr-defined]

        model._reply = overtaken
        assert f.step(task) == "nothing"
        assert f.kinds(task) == []
        assert f.row(task)["current_step"] == 0


LOOKS: list[int] = []


class Look(Read[int]):
    """Look, and fail now and then. Use in tests."""

    fails: int
    kind: str = "ValueError"

    def run(self, ctx: Any) -> int:
        """How often it looked."""
        LOOKS.append(1)
        if len(LOOKS) <= self.fails:
            if self.kind == "lost":
                with ctx.db() as db:
                    db.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))
            raise ToolError("no") if self.kind == "ToolError" else ValueError("broken")
        return len(LOOKS)


@pytest.mark.parametrize(
    ("fails", "kind", "looks", "ends"),
    [(2, "ValueError", 3, "Returned"), (9, "ValueError", 3, "Failed"), (1, "ToolError", 1, "Failed"),
     (1, "lost", 2, "Returned")],
)  # fmt: skip
def test_a_read_that_breaks_is_tried_twice_more(
    fresh_database: Any, fails: int, kind: str, looks: int, ends: str
) -> None:
    LOOKS.clear()
    with fleet(fresh_database, once(Look(fails=fails, kind=kind))) as f:
        change(f, "notes", tools=[Look])
        task = f.open()
        assert f.drain(task) == "done"
        assert len(LOOKS) == looks
        assert f.kinds(task)[3] == ends


def test_a_restart_of_the_database_is_waited_for_and_the_model_is_asked_once(
    fresh_database: Any, postgres: Postgres
) -> None:
    with fleet(fresh_database, once(KeepNote(text="kept"))) as f:
        model = counted(f)
        inner = f.run.model._inner  # type: ignore[attr-defined]
        task = f.open()

        down = Event()

        def stopped(request: Any) -> Any:
            postgres.stop()
            down.set()
            return inner.ask(request)

        model._reply = stopped
        with beside(lambda: f.step(task)) as left:
            assert down.wait(30)
            postgres.start()
        assert left == ["ready"]
        assert model.asked == 1
        model._reply = None
        assert f.drain(task) == "done"


def test_idle_connections_that_the_server_ended_are_replaced_unnoticed(fresh_database: Any) -> None:
    with fleet(fresh_database, once(KeepNote(text="kept"))) as f:
        task = f.open()
        for _ in range(2):
            owner(f, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = current_user"
                     " AND datname = current_database() AND pid <> pg_backend_pid()", fresh_database.app)  # fmt: skip
            assert f.step(task) in ("ready", "done")
