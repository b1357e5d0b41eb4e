"""Measure the figures of docs/benchmarks.md."""
