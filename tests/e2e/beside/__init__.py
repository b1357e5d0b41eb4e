"""A scheduler beside the scorer, on a real control plane."""
