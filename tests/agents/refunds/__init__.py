"""A test agent."""
