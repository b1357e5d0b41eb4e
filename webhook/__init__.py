"""Admission: what a pod becomes when it is created, and what is wrong with it.

Read `admit` first, the pure core; then `app`, which answers an API server, and `watches`, which
keeps what it knows.
"""
