"""Admission webhook: mutation and validation of pods on creation.

Read `linkwise.admission` first, the pure core; then `app`, the HTTP handlers, and `informers`,
their state.
"""
