"""Nodes: resources, GPUs, health and machines, from labels, agents and ResourceSlices."""
