"""Comparison of the processes on the GPUs with the records of pods."""
