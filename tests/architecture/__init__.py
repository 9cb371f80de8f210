"""The shape of the repository, held by tests."""
