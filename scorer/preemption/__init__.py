"""Evict whole units of lower priority for a unit that fits nowhere."""
