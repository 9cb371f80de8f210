"""The agent of the benchmarks: reads and reads, with results of a given size."""
