"""The record of a move."""

import pytest

from linkwise.cluster import keys
from linkwise.cluster.gang import Link
from linkwise.planning.gang.crd import Gang, GangMetadata, GangSpec
from linkwise.planning.gang.moved import Moved, moved_of, moved_text


def a_gang(annotations):
    return Gang(
        GangMetadata(name="g", namespace="n", annotations=annotations),
        GangSpec(gang="g", link=Link.BEST),
    )


def test_a_move_is_read_as_it_was_written():
    moved = Moved("7-1", 1_767_225_660.5, "unhealthy GPUs: 3 of a (pod bert-1)")

    assert moved_of(a_gang({keys.MOVED: moved_text(moved)})) == moved


@pytest.mark.parametrize(
    "record",
    [
        pytest.param("", id="empty"),
        pytest.param("{", id="no JSON"),
        pytest.param('{"at":5,"why":""}', id="without a plan"),
        pytest.param('{"plan":"7-1","at":5}', id="without a reason"),
        pytest.param('{"plan":"7-1","at":-1,"why":""}', id="before 1970"),
        pytest.param('{"plan":"7-1","at":1e300,"why":""}', id="a time that cannot be written"),
    ],
)
def test_an_unreadable_record_counts_as_none(record):
    assert moved_of(a_gang({keys.MOVED: record})) is None


def test_a_gang_without_a_record_was_not_moved():
    assert moved_of(a_gang({})) is None
