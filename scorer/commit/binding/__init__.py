"""Tracking of written plans until all their pods are bound."""
