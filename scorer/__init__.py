"""Scorer: allocate GPUs of nodes to pods and gangs, and answer a scheduler's extender calls.

Read `linkwise.planning` first, the pure core; then `planner` and `leader`, which run it.
"""
