"""Settings of every test."""

from hypothesis import settings

# Other work on the machine must not fail a test; pytest's timeout ends one that hangs.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
