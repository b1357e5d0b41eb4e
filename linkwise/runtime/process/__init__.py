"""Event loop, clock, environment, logs, metrics and child processes."""
