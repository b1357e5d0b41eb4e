"""Placement: which node and which GPUs every pod and every gang gets, and why. Pure core."""
