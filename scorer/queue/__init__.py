"""Units that wait for GPUs: their order, backoff, time budgets and gang sizes."""
