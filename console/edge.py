"""What an HTTP process holds, its database, agents, services and bell, and how it lets go of them."""

from __future__ import annotations

from dataclasses import dataclass

from workers import registry
from workers.intake import Intake
from workers.lanes import Lanes
from workers.operate import Operate
from workers.registry import Registry
from workers.settings import Settings
from workers.store.database import Database
from workers.switches import Switches
from workers.telemetry import Log, logger

from .bell import Bell


@dataclass(frozen=True)
class Edge:
    """The parts of one process, made once and shared by its requests. Nothing connects before it is used."""

    settings: Settings
    db: Database
    agents: Registry
    intake: Intake
    operate: Operate
    switches: Switches
    bell: Bell
    log: Log

    def close(self) -> None:
        """Close every connection and end the bell's thread."""
        self.bell.close()
        self.db.close()


def edge(settings: Settings) -> Edge:
    """The parts, from the settings."""
    db = Database(settings.database_url.get_secret_value(), size=settings.db_pool, application="twelvefold-http")
    agents = registry.load(settings.agent_modules)
    agents.check_names(settings.directory)
    lanes = Lanes(settings.broker_url.get_secret_value(), settings.lane_prefix)
    log = logger(process="http")
    return Edge(
        settings, db, agents, Intake(db, agents, log), Operate(db, agents), Switches(db), Bell(db, lanes, settings), log
    )
