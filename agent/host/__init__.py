"""Programs of the node."""
