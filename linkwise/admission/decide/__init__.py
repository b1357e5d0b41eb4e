"""Decide about a pod: validation, outcome and messages."""
