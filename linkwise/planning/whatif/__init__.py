"""Simulation of pods that do not exist yet."""
