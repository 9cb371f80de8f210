"""Benchmarks: ratios measured side by side in one run. `python -m tests.bench` exits 1 when a target is missed."""
