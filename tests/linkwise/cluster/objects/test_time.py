"""Times of Kubernetes objects."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis.strategies import datetimes, just, text

from linkwise.cluster.objects.time import seconds_of


@given(datetimes(timezones=just(UTC)))
def test_a_time_of_kubernetes_is_read_to_the_microsecond(moment: datetime):
    assert seconds_of(moment.isoformat().replace("+00:00", "Z")) == moment.timestamp()


@pytest.mark.parametrize("absent", [None, ""])
def test_an_object_without_a_time_has_none(absent: str | None):
    assert seconds_of(absent) is None


@given(text())
def test_any_text_is_a_time_or_none(written: str):
    assert seconds_of(written) is None or isinstance(seconds_of(written), float)


@pytest.mark.parametrize("edge", ["0001-01-01T00:00:00", "9999-12-31T23:59:59"])
def test_a_time_at_the_edge_of_the_calendar_is_no_error(edge: str):
    assert seconds_of(edge) is None or isinstance(seconds_of(edge), float)
