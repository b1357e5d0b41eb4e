"""Late binding: CDI specifications with the GPUs of one container, written before it starts."""
