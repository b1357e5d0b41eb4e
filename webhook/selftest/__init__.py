"""Try an installation from within: the Pod of `helm test`."""
