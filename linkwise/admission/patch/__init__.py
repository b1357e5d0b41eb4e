"""Change a pod: one module for each subject of the patch."""
