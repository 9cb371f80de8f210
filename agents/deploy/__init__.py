"""The agent that takes releases into production."""
