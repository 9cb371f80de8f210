"""All of a step's commit or nothing of it, whatever fails between which two writes."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from tests.agents.notes.tables import NoteRow
from tests.agents.notes.tools import KeepNote
from tests.hands import change, counted, once, owner
from tests.harness import Fleet, fleet
from twelvefold import Done, Task, Text, Write

FAULT = """
CREATE SEQUENCE fault_writes;
CREATE TABLE fault (at int);
INSERT INTO fault VALUES (0);
GRANT ALL ON fault, fault_writes TO PUBLIC;
CREATE FUNCTION fault() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE n int := coalesce(nullif(current_setting('test.n', true), ''), '0')::int + 1;
BEGIN
    PERFORM set_config('test.n', n::text, true), nextval('fault_writes');
    IF n = (SELECT at FROM fault) THEN RAISE SQLSTATE '57P01'; END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER fault BEFORE UPDATE ON agent_tasks FOR EACH ROW
    WHEN (NEW.current_step > OLD.current_step) EXECUTE FUNCTION fault();
"""
TABLES = ("agent_events", "outbox", "approvals", "notes", "arrivals")


def _everything(f: Fleet, task: str) -> dict[str, Any]:
    found = {t: f.run.db.rows(f"SELECT * FROM {t}") for t in TABLES}
    row = f.row(task)
    for moving in ("worker_id", "claimed_until", "fence", "attempts", "nudged_at"):
        row.pop(moving)
    return found | {"task": row}


def _shouting(f: Fleet, message: str = "more") -> str:
    """A task whose next step writes a note, ends, and touches every table that a commit can touch."""
    change(f, "notes", steer=lambda task: Done(outcome=Text(text="kept")) if task.did(KeepNote) else None)
    task = f.open()
    assert f.drain(task) == "waiting"
    call = f.state(task).call
    assert call is not None
    f.operate.decide(task, call.seq, approved=True, by="ann")
    f.intake.message(task, source="test", key=f"m-{task}", text=message, sender="ann")
    return task


def test_an_error_between_any_two_writes_of_a_commit_leaves_none(fresh_database: Any) -> None:
    with fleet(fresh_database, once(KeepNote(text="LOUD"))) as f:
        owner(f, FAULT, fresh_database.owner)
        for table in TABLES:
            owner(f, f"CREATE TRIGGER fault BEFORE INSERT OR UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION fault()",
                  fresh_database.owner)  # fmt: skip
        whole = _shouting(f)
        owner(f, "SELECT setval('fault_writes', 1, false)", fresh_database.owner)
        assert f.step(whole) == "done"
        writes = f.one("SELECT last_value FROM fault_writes")
        assert writes >= 9, "approval used, note, task, events, two arrivals, outbox"
        task = _shouting(f)
        before = _everything(f, task)
        for k in range(1, writes + 1):
            owner(f, f"UPDATE fault SET at = {k}", fresh_database.owner)
            with pytest.raises((psycopg.OperationalError, OperationalError)):
                f.step(task)
            assert _everything(f, task) == before, f"the write {k} of {writes} failed, and something was left"
            assert f.row(task)["worker_id"] is None
            owner(f, "UPDATE fault SET at = 0; UPDATE agent_tasks SET attempts = 0", fresh_database.owner)
        assert f.step(task) == "done"
        assert f.one("SELECT count(*) FROM notes") == 2


def test_an_error_after_the_last_write_and_before_the_commit_leaves_none(fresh_database: Any) -> None:
    deferred = """
        CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN IF NEW.text = 'late' THEN RAISE 'no'; END IF; RETURN NULL; END $$;
        CREATE CONSTRAINT TRIGGER late AFTER INSERT ON notes DEFERRABLE INITIALLY DEFERRED
            FOR EACH ROW EXECUTE FUNCTION late();
    """
    with fleet(fresh_database, once(KeepNote(text="late"))) as f:
        owner(f, deferred, fresh_database.owner)
        task = f.open()
        assert f.step(task) == "ready"
        before = _everything(f, task)
        with pytest.raises(psycopg.errors.RaiseException):
            f.step(task)
        assert _everything(f, task) == before
        assert f.row(task)["worker_id"] is None


class Careless(Write[int]):
    """Keep a note and ignore what fails. Use in tests."""

    ok: bool = False

    def write(self, db: Session) -> int:
        """Write one row, then swallow an error."""
        db.add(NoteRow(text="half", task_id=""))
        db.flush()
        if not self.ok and not MENDED:
            try:
                db.execute(text("SELECT 1 / 0"))
            except Exception:
                return 0
        return 1


MENDED: list[bool] = []


def test_b54_a_swallowed_database_error_commits_nothing_half(fresh_database: Any) -> None:
    MENDED.clear()
    with fleet(fresh_database, once(Careless())) as f:
        change(f, "notes", tools=[Careless])
        model = counted(f)
        task = f.open()
        assert f.drain(task) == "quarantined"
        assert f.one("SELECT count(*) FROM notes") == 0
        assert f.kinds(task) == ["Arrived", "ModelAsked", "Decided", "Quarantined"]
        assert f.row(task)["reason"] == "workers.store.database.DirtyTransaction"
        MENDED.append(True)  # the tool was mended and deployed
        f.operate.retry(task, by="ann")
        assert f.drain(task) == "done"
        assert f.one("SELECT count(*) FROM notes") == 1
        assert model.asked == 2, "the call was decided before the quarantine"


class Guarded(Write[int]):
    """Keep a note once, whoever else does. Use in tests."""

    def write(self, db: Session) -> int:
        """A savepoint of the tool's own is the right way to try something."""
        try:
            with db.begin_nested():
                db.execute(text("SELECT 1 / 0"))
        except Exception:
            db.add(NoteRow(text="after all", task_id=""))
        return 1


def test_a_tool_may_try_something_behind_a_savepoint_of_its_own(fresh_database: Any) -> None:
    with fleet(fresh_database, once(Guarded())) as f:
        change(f, "notes", tools=[Guarded])
        task = f.open()
        assert f.drain(task) == "done"
        assert f.one("SELECT text FROM notes") == "after all"


class Bossy(Write[int]):
    """Decide about the transaction. Use in tests."""

    verb: str

    def write(self, db: Session) -> int:
        """Refused by the session, or found out afterwards."""
        db.add(NoteRow(text="mine", task_id=""))
        db.flush()
        if self.verb == "COMMIT":
            db.execute(text("COMMIT"))
        else:
            getattr(db, self.verb)()
        return 1


@pytest.mark.parametrize("verb", ["commit", "rollback", "close"])
def test_a_tool_cannot_end_the_transaction_of_the_step(fresh_database: Any, verb: str) -> None:
    with fleet(fresh_database, once(Bossy(verb=verb))) as f:
        change(f, "notes", tools=[Bossy])
        task = f.open()
        assert f.drain(task) == "done"
        assert "Failed" in f.kinds(task)
        assert f.one("SELECT count(*) FROM notes") == 0


def test_a_tool_that_ends_the_transaction_behind_our_back_is_found_out(fresh_database: Any) -> None:
    with fleet(fresh_database, once(Bossy(verb="COMMIT"))) as f:
        change(f, "notes", tools=[Bossy])
        task = f.open()
        f.step(task)
        assert f.step(task) == "quarantined"
        assert f.kinds(task) == ["Arrived", "ModelAsked", "Decided", "Quarantined"]


def test_b56_state_cannot_be_changed_in_place(fresh_database: Any) -> None:
    seen: list[str] = []

    def script(task: Task) -> Done:
        places: tuple[tuple[Any, str], ...] = ((task.state, "failures"), (task.state.used, "tokens"), (task, "state"))
        for what, name in places:
            try:
                setattr(what, name, 7)
            except Exception as error:
                seen.append(type(error).__name__)
        return Done(outcome=Text(text="still mine"))

    with fleet(fresh_database, script) as f:
        task = f.open()
        assert f.drain(task) == "done"
        assert len(seen) == 3
        assert f.state(task).failures == 0
