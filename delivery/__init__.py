"""The way out: each module pushes messages over one channel and returns a receipt."""
