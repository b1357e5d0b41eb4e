"""Pods as watched."""
