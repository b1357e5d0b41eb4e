"""Removal of units from their GPUs, for whatever reason."""
