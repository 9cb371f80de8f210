"""Agents for tests only; they have exactly the shape of a team's own."""
