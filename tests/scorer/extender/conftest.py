"""A scorer beside a scheduler."""

import pytest


@pytest.fixture
def beside():
    return "replica-0_scheduler"
