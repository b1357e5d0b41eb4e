"""Readers of live clusters: the API server, and the webhook's dry-run API."""
