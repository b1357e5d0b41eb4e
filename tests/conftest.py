"""Settings of every test."""

import logging

import pytest
from hypothesis import HealthCheck, settings
from support.properties import pytest_collection_modifyitems  # noqa: F401 - pytest calls it.
from support.rerun import pytest_addoption, pytest_configure  # noqa: F401 - pytest calls them.

# Other work on the machine must not fail a test; pytest's timeout ends one that hangs.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


@pytest.fixture(autouse=True)
def logging_as_it_was():
    """Restore the root logger: servers in the test's process redirect the logs of libraries."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
