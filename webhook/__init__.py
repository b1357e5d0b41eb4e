"""Admission: what a pod becomes when it is created, and what is wrong with it. Pure core.

Read `admit` first.
"""
