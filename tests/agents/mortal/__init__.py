"""The agent that takes its worker with it."""
