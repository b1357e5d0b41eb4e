"""Readers of published traces, by the names of their columns."""
