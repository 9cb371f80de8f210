"""The way in: each module verifies what came from outside and translates it into events."""
