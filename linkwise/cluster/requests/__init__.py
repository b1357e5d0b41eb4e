"""Requests of pods: GPUs, CPU and memory, and what is wrong with them."""
