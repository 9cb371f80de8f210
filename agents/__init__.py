"""The agents of this fleet: one folder each, declarations only."""
