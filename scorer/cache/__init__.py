"""The cluster as watched, and snapshots of it."""
