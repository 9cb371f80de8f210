"""What probes found out about endpoints, for every process of the fleet."""

from __future__ import annotations

from workers.profiles import OPENAI, Profile

from .database import Database


def profile(db: Database, base_url: str) -> Profile:
    """What the endpoint can do as it was probed last; OpenAI's profile where it never was."""
    with db.connection() as connection:
        found = connection.execute("SELECT profile::text FROM endpoints WHERE base_url = %s", (base_url,)).fetchone()
    return OPENAI if found is None else Profile.model_validate_json(found[0])


def keep(db: Database, base_url: str, found: Profile) -> None:
    """Keep what a probe found."""
    with db.connection() as connection:
        connection.execute(
            "INSERT INTO endpoints (base_url, profile) VALUES (%s, %s) ON CONFLICT (base_url)"
            " DO UPDATE SET profile = excluded.profile, probed_at = clock_timestamp()",
            (base_url, found.model_dump_json()),
        )
