"""Admission: one review, the webhook's process, a real API server."""
