"""Model of the cluster: GPU requests of pods, GPUs of nodes, and allocations. Pure.

Read `keys` (all names on the wire), `pod` and `request` first; then `ledger`, the allocations.
"""
