"""Gangs and shares on a real scheduler."""
