"""The history of a gang, by its Gang object and its pods."""

import msgspec
import pytest

from linkwise.cluster import keys
from linkwise.cluster.objects.pod import Pod
from linkwise.dashboard.gang_history import gang_history
from linkwise.planning.gang.crd import Gang

MOVED_AT = 1_795_341_660
"""2026-11-22T10:01:00Z"""


PLAN = {
    "id": "1-1",
    "exact": True,
    "members": [{"pod": "p", "uid": "u", "node": "gpu-0", "gpus": [0]}],
    "plannedAt": "2026-11-22T10:01:30Z",
}


def a_gang(*, moved: bool = False, planned: bool = False):
    annotations = {keys.MOVED: f'{{"plan":"p","at":{MOVED_AT},"why":"a fault"}}'} if moved else {}
    placed = {
        "type": "Placed",
        "status": "True",
        "reason": "Placed",
        "message": "",
        "lastTransitionTime": "2026-11-22T10:03:30Z",
    }
    raw = {
        "metadata": {"name": "g", "namespace": "team", "annotations": annotations},
        "spec": {"gang": "g", "link": "best", **({"plan": PLAN} if planned else {})},
        "status": {"conditions": [placed]},
    }
    return msgspec.convert(raw, Gang)


def a_pod(created: str, bound: str | None):
    scheduled = {"type": "PodScheduled", "status": "True" if bound else "False"}
    raw = {
        "metadata": {"name": "p", "creationTimestamp": f"2026-11-22T10:{created}:00Z"},
        "status": {
            "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-22T10:59:00Z"},
                scheduled | {"lastTransitionTime": f"2026-11-22T10:{bound or '00'}:00Z"},
            ]
        },
    }
    return msgspec.convert(raw, Pod)


@pytest.mark.parametrize(
    ("moved", "pods", "events"),
    [
        pytest.param(
            False,
            [a_pod("00", "02"), a_pod("01", "03")],
            ["00 First pod created", "03 Bound", "03 Placed is True"],
            id="bound",
        ),
        pytest.param(
            False,
            [a_pod("00", "02"), a_pod("01", None)],
            ["00 First pod created", "03 Placed is True"],
            id="partly bound",
        ),
        pytest.param(
            True,
            [a_pod("02", "03"), a_pod("02", "03")],
            ["01 Moved off a fault", "02 First pod created", "03 Healed", "03 Placed is True"],
            id="healed",
        ),
        pytest.param(
            True,
            [a_pod("00", "00"), a_pod("02", "03")],
            ["00 First pod created", "01 Moved off a fault", "03 Bound", "03 Placed is True"],
            id="a pod of before the move is left",
        ),
        pytest.param(False, [], ["03 Placed is True"], id="no pods"),
    ],
)
def test_history_is_in_order_of_time(moved, pods, events):
    history = gang_history(a_gang(moved=moved), pods)

    assert [f"{event.time[14:16]} {event.what}" for event in history] == events


def test_history_says_when_the_gang_was_planned():
    (planned, placed) = gang_history(a_gang(planned=True), [])

    assert planned == ("2026-11-22T10:01:30Z", "Planned", "1 pod on 1 node")
    assert placed.what == "Placed is True"
