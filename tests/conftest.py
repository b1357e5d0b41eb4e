"""Settings of every test."""

from hypothesis import HealthCheck, settings

# Other work on the machine must not fail a test; pytest's timeout ends one that hangs.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")
