"""The GPUs of a pod, and the annotations that record them."""
