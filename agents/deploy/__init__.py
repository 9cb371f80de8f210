"""The agent that follows releases."""
