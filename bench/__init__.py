"""Benchmarks: each runs as `scripts/bench NAME` and prints a last line of key=value pairs."""
