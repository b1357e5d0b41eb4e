"""Builders, strategies and other tools of several tests."""
