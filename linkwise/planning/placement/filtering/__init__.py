"""Filter nodes, and count how many pods each one fits."""
