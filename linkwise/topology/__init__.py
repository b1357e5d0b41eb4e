"""Links between the GPUs of a machine, and the bandwidth of GPU sets. Pure, without Kubernetes.

Read `machine` first, then `bandwidth` (how good is a set), `table` and `choice` (which to take).
"""
