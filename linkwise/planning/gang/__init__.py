"""Pods, units and Gang objects."""
