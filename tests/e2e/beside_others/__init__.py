"""Linkwise beside queues and schedulers of others, on a control plane of its own."""
