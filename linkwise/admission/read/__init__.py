"""Read a pod: its request, its gang, its claims and the sharing."""
