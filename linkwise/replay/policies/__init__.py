"""Scheduling policies: how each chooses the nodes and the GPUs of a job."""
