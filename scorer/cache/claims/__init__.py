"""Claims and slices of dynamic resource allocation, as watched."""
