"""When a schedule fires: a cron expression in a time zone, translated to instants of UTC. Pure: nothing is stored here.

Five fields or one of the macros, and nothing that other crons read differently. Days and weekdays that are both given
are alternatives, as in Vixie cron, unless one of them begins with a star. Across a change of the clocks, too, Vixie
cron's rules hold: what falls into the hour that is left out fires right after it, what falls into the hour that comes
twice fires in the first one, and where the minute or the hour begins with a star, real time counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import cached_property, lru_cache
from hashlib import sha256
from importlib.resources import files
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from twelvefold.bindings import CatchUp, Dst
from twelvefold.errors import DeclarationError

MACROS = {
    "@hourly": "0 * * * *", "@daily": "0 0 * * *", "@weekly": "0 0 * * 0", "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
}  # fmt: skip
MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
WEEKDAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
FIELDS: tuple[tuple[str, int, int, dict[str, int]], ...] = (
    ("minute", 0, 59, {}), ("hour", 0, 23, {}), ("day of the month", 1, 31, {}),
    ("month", 1, 12, {name: n for n, name in enumerate(MONTHS, 1)}),
    ("day of the week", 0, 7, {name: n for n, name in enumerate(WEEKDAYS)}),
)  # fmt: skip
ITEM = re.compile(r"(?P<star>\*)(?:/(?P<every>[0-9]+))?|(?P<low>\w+)(?:-(?P<high>\w+)(?:/(?P<step>[0-9]+))?)?")
ON_TIME = timedelta(minutes=1)
"""An instant that is seen no later than this is not late: schedules have minutes, and a sweep comes every second."""
MOST_LATE = 100
"""So many missed instants are made up for at most, the newest ones, oldest first."""
MOST_AT_ONCE = 1000
EXAMPLE = "Example: '0 9 * * 1-5' is 09:00 from Monday to Friday."


@dataclass(frozen=True)
class Cron:
    """A checked expression; made by `cron`. `zone` is an IANA name."""

    expression: str
    zone: str
    dst: Dst

    def fires(self, after: datetime) -> Iterator[datetime]:
        """The instants after `after`, in UTC and in order, whichever of them one begins at."""
        last = after
        where = UTC if self.dst == "utc" else _zone(self.zone)
        for local in CronSim(self._fields, after.astimezone(where)):
            fire = local.astimezone(UTC)
            # begun inside the hour that comes twice, the search would return to the first one
            if fire > last and not (self.dst == "skip" and self._shifted(fire)):
                last = fire
                yield fire

    def next(self, after: datetime) -> datetime:
        """The first instant after `after`."""
        return next(self.fires(after))

    def local(self, fire: datetime) -> datetime:
        """The instant as the clocks of the zone show it, with its offset."""
        return fire.astimezone(_zone(self.zone))

    @property
    def sentence(self) -> str:
        """The expression in words."""
        plan = CronSim(self._fields, datetime(2000, 1, 1, tzinfo=UTC))
        told = plan.explain() if plan.day_and else plan.explain().replace(" and on ", " or on ")
        return f"{told}, {'UTC' if self.dst == 'utc' else self.zone}"

    @cached_property
    def _fields(self) -> str:
        return MACROS.get(self.expression.lower(), self.expression)

    def _shifted(self, fire: datetime) -> bool:
        wanted = CronSim(self._fields, fire)
        local = self.local(fire)
        return local.hour not in wanted.hours or local.minute not in wanted.minutes


def cron(expression: str, zone: str = "UTC", dst: Dst = "vixie") -> Cron:
    """A checked expression. `dst="skip"` leaves out what falls into the hour that is left out; `"utc"` reads the
    expression as UTC and only shows times in the zone. Raises DeclarationError that names the field and the mistake.
    """
    made = Cron(" ".join(expression.split()), zone, dst)
    _zone(zone)
    if made.expression.lower() not in MACROS:
        _check(made.expression)
    try:
        made.next(datetime(2000, 1, 1, tzinfo=UTC))
    except (CronSimError, StopIteration):
        raise DeclarationError(f"cron {expression!r} never fires: no month that it names has such a day.") from None
    return made


def delayed(fire: datetime, following: datetime, jitter: timedelta, name: str) -> datetime:
    """When the firing is due: up to `jitter` later, always as much for this name and time, and before the next one."""
    share = int.from_bytes(sha256(f"{name} {fire.isoformat()}".encode()).digest()[:6], "big") / 2**48
    return fire + min(jitter, following - fire) * share


def due(plan: Cron, since: datetime, until: datetime, jitter: timedelta, name: str, most: int) -> list[datetime]:
    """The first `most` instants after `since` that are due by `until`, their jitter counted in."""
    found: list[datetime] = []
    for fire, following in islice(pairwise(plan.fires(since)), most):
        if delayed(fire, following, jitter, name) > until:
            break
        found.append(fire)
    return found


def next_due(plan: Cron, since: datetime, jitter: timedelta, name: str) -> datetime:
    """When the first firing after `since` is due."""
    fire, following = islice(plan.fires(since), 2)
    return delayed(fire, following, jitter, name)


@dataclass(frozen=True, slots=True)
class Turn:
    """What becomes of one instant: it opens a task, or is passed over for this reason."""

    fire: datetime
    late: bool
    passed: str = ""


def turns(times: list[datetime], now: datetime, catch_up: CatchUp, window: timedelta, jitter: timedelta) -> list[Turn]:
    """What becomes of instants that are due, oldest first: on time they fire; late ones as `catch_up` says, if they are
    no older than `window`. When there may be more of them than were found, the last ones are left for the next time.
    """
    found = []
    for at, fire in enumerate(times):
        age, later = now - fire - jitter, len(times) - at - 1
        late = age > ON_TIME
        passed = ""
        if late and (catch_up == "none" or age > window or later >= MOST_LATE):
            passed = "missed"
        elif late and catch_up == "latest" and later:
            passed = "superseded"
        found.append(Turn(fire, late, passed))
    return found if len(times) < MOST_AT_ONCE else found[:-MOST_LATE]


def _check(expression: str) -> None:
    parts = expression.upper().split()
    if len(parts) == 1 and parts[0].startswith("@"):
        raise DeclarationError(f"cron {expression!r} is none of {', '.join(MACROS)}. {EXAMPLE}")
    if len(parts) != len(FIELDS):
        raise DeclarationError(
            f"cron {expression!r} has {len(parts)} fields; it takes five: minute, hour, day, month, weekday. {EXAMPLE}"
        )
    for part, field in zip(parts, FIELDS, strict=True):
        for item in part.split(","):
            _check_item(expression, item, *field)


def _check_item(expression: str, item: str, field: str, least: int, most: int, names: dict[str, int]) -> None:
    found = ITEM.fullmatch(item)
    wrong = f"cron {expression!r}: the {field} cannot be {item!r}"
    if found is None:
        raise DeclarationError(f"{wrong}. A field is *, */5, 3, 1-5, 10-50/10 or several with commas. {EXAMPLE}")
    step = found["every"] or found["step"]
    if step is not None and not 1 <= int(step) <= most:
        raise DeclarationError(f"{wrong}: a step is from 1 to {most}.")
    numbers = [names.get(each, each) for each in (found["low"], found["high"]) if each is not None]
    for number in numbers:
        if isinstance(number, str) and not number.isascii():
            raise DeclarationError(f"{wrong}: write plain digits.")
        if isinstance(number, str) and not (number.isdecimal() and least <= int(number) <= most):
            told = f", or {', '.join(names)}" if names else ""
            raise DeclarationError(f"{wrong}: it is from {least} to {most}{told}.")
    if len(numbers) == 2 and int(numbers[0]) > int(numbers[1]):
        raise DeclarationError(f"{wrong}: a range goes upwards. Write two with a comma.")


@lru_cache(maxsize=1)
def _zones() -> frozenset[str]:
    return frozenset((files("tzdata") / "zones").read_text(encoding="ascii").split())


@lru_cache(maxsize=1000)
def _zone(name: str) -> ZoneInfo:
    """From the package of time zones, so that it is the same on every machine."""
    if name not in _zones():
        like = get_close_matches(name, _zones(), 3)
        near = f" Did you mean {' or '.join(like)}?" if like else " Write it like Europe/Berlin."
        raise DeclarationError(f"There is no time zone {name!r}.{near}")
    with files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)
