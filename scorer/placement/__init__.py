"""Choose nodes and GPUs for a group of pods on one snapshot. Pure."""
