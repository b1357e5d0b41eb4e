"""Planning at the size of a large cluster, in one process."""
