"""Assign pods to nodes and GPUs whose links are known."""
