"""What links a machine's GPUs, and how good a set of them is. Pure; knows nothing of Kubernetes.

Read `machine` first, then `bandwidth` (how good is a set), `table` and `choice` (which to take).
"""
