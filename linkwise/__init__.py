"""Linkwise: what is decided, and what a person runs. Processes import it."""
