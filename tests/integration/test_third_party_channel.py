"""A channel that somebody else ships: found by its entry point, held by the kit, used by a declaration alone."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from delivery import kit
from tests.fakes.pager import Pager
from tests.harness import fleet
from twelvefold import Done, Text
from twelvefold.bindings import to
from twelvefold.errors import DeclarationError
from twelvefold.ports import Channel, Letter, NotSent, Receipt
from workers.relay import deliver
from workers.settings import ConfigurationError, load
from workers.wiring import channels

ENV = {"DATABASE_URL": "postgresql://x@y/z", "BROKER_URL": "redis://x"}
SHIPPED = Path(__file__).parents[1] / "fakes" / "pager.py"


class Boxes:
    """The pagers of the kit."""

    recipient, secret = "ann", "the secret of the pagers"

    def __init__(self, folder: Path, kind: type[Pager] = Pager) -> None:
        self.folder, self.kind = folder, kind
        (folder / "ann").mkdir()

    def channel(self) -> Channel:
        return self.kind({"folder": str(self.folder)}, self.secret)

    def seen(self) -> list[str]:
        return sorted(path.stem for path in (self.folder / "ann").iterdir())

    def refuse(self) -> None:
        (self.folder / "refuse.flag").touch()

    def busy(self) -> None:
        (self.folder / "busy.flag").touch()

    def lose(self) -> None:
        (self.folder / "lose.flag").touch()


class Quiet(Pager):
    """Says that all is well, always."""

    def push(self, letter: Letter) -> Receipt:
        try:
            return super().push(letter)
        except Exception:
            return Receipt("x")


class Talking(Pager):
    """Tells its secret."""

    def push(self, letter: Letter) -> Receipt:
        try:
            return super().push(letter)
        except NotSent as error:
            raise NotSent(f"{error.reason} with {self._secret}", retry=error.retry) from error


class Forgetful(Pager):
    """Makes a new letter at every attempt."""

    count = 0

    def push(self, letter: Letter) -> Receipt:
        Forgetful.count += 1
        found = super().push(letter)
        Path(found.reference).rename(Path(found.reference).with_stem(f"{letter.id}-{Forgetful.count}"))
        return found


def test_the_kit_passes_a_good_channel_and_names_what_is_wrong_with_others(tmp_path: Path) -> None:
    for name in ("good", "quiet", "talking", "forgetful"):
        (tmp_path / name).mkdir()
    kit.check(Boxes(tmp_path / "good"))
    for bad, says in (
        (Quiet, "has to raise NotSent"),
        (Talking, "never tells the secret"),
        (Forgetful, "by its id|under its id"),
    ):
        with pytest.raises(AssertionError, match=says):
            kit.check(Boxes(tmp_path / bad.__name__.lower(), bad))


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A distribution with our channel, as pip would leave it."""
    site = tmp_path / "site"
    info = site / "pager-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "shipped_pager.py").write_text(SHIPPED.read_text())
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pager\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[twelvefold.channels]\npager = shipped_pager:Pager\n")
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delitem(sys.modules, "shipped_pager", raising=False)
    return tmp_path


def test_an_installed_channel_is_used_by_a_declaration_alone(fresh_database: Any, installed: Path) -> None:
    (installed / "ann").mkdir()
    text = json.dumps({"pager": {"use": "pager", "options": {"folder": str(installed)}}})
    found = load({**ENV, "TWELVEFOLD_CHANNELS": text, "PAGER_CHANNEL_SECRET": "hush-hush"}).channels
    assert found["pager"].secrets[0].get_secret_value() == "hush-hush" and "hush-hush" not in str(found)
    with fleet(fresh_database, lambda task: Done(outcome=Text(text="all is well")), channels=found) as f:
        ways = channels(f.run)
        task = f.open()
        f.drain(task)
        with f.run.db.connection() as connection:
            connection.execute("UPDATE outbox SET channel = 'pager', recipient = 'ann'")
        letter = f.one("SELECT id::text FROM outbox")
        assert deliver(letter, f.run, ways) == "sent"
        assert "all is well" in (installed / "ann" / f"{letter}.txt").read_text()
    there = to.channel("pager", "ann")
    assert (there.channel, there.recipient) == ("pager", "ann")


def test_a_channel_that_nobody_ships_or_that_takes_our_name_is_refused_at_the_start(
    fresh_database: Any, installed: Path
) -> None:
    for name, use, says in (("x", "nothing", "offers a channel 'nothing'.*pager"), ("email", "pager", "is ours")):
        found = load({**ENV, "TWELVEFOLD_CHANNELS": json.dumps({name: {"use": use}})}).channels
        made = fleet(fresh_database, lambda task: Done(outcome=Text(text="x")), channels=found)
        with made as f, pytest.raises(DeclarationError, match=says):
            channels(f.run)
    with pytest.raises(ConfigurationError, match="TWELVEFOLD_CHANNELS"):
        load({**ENV, "TWELVEFOLD_CHANNELS": '{"x": {"secrets": ["a"]}}'})
