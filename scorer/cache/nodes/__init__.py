"""Nodes as watched: their machines, their tables, and GPUs that new pods may not have yet."""
