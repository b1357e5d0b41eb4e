"""Victims of preemption, compared with all sets that the disruption budgets allow."""

import os

import pytest
from support.victims import check

CASES = 2_000
pytestmark = [pytest.mark.fuzz, pytest.mark.timeout(1_800)]


def test_no_set_that_the_budgets_allow_is_missed():
    first = int(os.environ.get("FUZZ_SEED", "0")) * CASES

    assert list(filter(None, map(check, range(first, first + CASES)))) == []
