"""The pods that are planned together."""
