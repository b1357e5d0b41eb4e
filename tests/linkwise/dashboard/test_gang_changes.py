from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from support.dashboard import placed_pod

from linkwise.dashboard.gang_changes import CHANGES, ChangeKind, Past, gang_changes
from linkwise.dashboard.history import Change, History
from linkwise.views.render.page.rows import HolderRow, NodeRow

GANG = "team/vgg"
MAPS = st.dictionaries(
    st.sampled_from(["a", "b", "c"]), st.sets(st.integers(0, 3), max_size=3), max_size=3
)


def row(name: str, gpus: set[int]) -> NodeRow:
    """Return a node with a pod of the gang on each of these GPUs, and another gang's pod."""
    pods = [HolderRow(f"team/vgg-{gpu}", GANG, (gpu,), 0, "1 GPU", 0) for gpu in sorted(gpus)]
    other = HolderRow("team/x", "team/x", (7,), 0, "1 GPU", 0)
    return NodeRow(name, "", "", "", "", "", 0, 0, 0, False, (), (*pods, other))


def past_of(maps: list[dict[str, set[int]]]) -> Past:
    """Return the past of nodes and the gang's GPUs on each, one map for each second."""
    rows = [{name: row(name, gpus) for name, gpus in each.items()} for each in maps]
    changes = [Change(1, 0.0, {}, {}, {}, 0)]
    for at, (old, new) in enumerate(pairwise(rows), 1):
        names = {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}
        changes.append(
            Change(at + 1, float(at), {name: old.get(name) for name in names}, {}, {}, 0)
        )
    return Past(rows[-1], tuple(changes))


def on(places) -> dict[str, set[int]]:
    return {place.node: set(place.gpus) for place in places}


def test_a_gang_is_allocated_moved_loses_a_member_gains_it_again_and_is_released(moment):
    history = History()
    first, second = placed_pod("vgg-0", 0), placed_pod("vgg-1", 3)
    states = [
        (),
        (first, second),
        (placed_pod("vgg-0", 0, node="dgx-1"), placed_pod("vgg-1", 3, node="dgx-1")),
        (placed_pod("vgg-0", 0, node="dgx-1"),),
        (placed_pod("vgg-0", 0, node="dgx-1"), placed_pod("vgg-2", 5, node="dgx-1")),
        (placed_pod("other", 1, "other"),),
    ]
    for at, pods in enumerate(states):
        history.add(moment(*pods, at=float(at)))

    changes = gang_changes(Past(history.rows, history.changes), GANG)

    assert [(change.at, change.kind.value) for change in changes] == [
        (1, "allocated"),
        (2, "moved"),
        (3, "lost"),
        (4, "gained"),
        (5, "released"),
    ]
    assert on(changes[1].before) == {"dgx-0": {0, 3}}
    assert on(changes[1].after) == {"dgx-1": {0, 3}}
    assert [place.pods for place in changes[2].after] == [1]


@given(st.lists(MAPS, min_size=1, max_size=12))
def test_the_changes_lead_from_the_first_map_to_the_last(maps):
    now = {name: gpus for name, gpus in maps[0].items() if gpus}

    for change in gang_changes(past_of(maps), GANG):
        had = bool(now)
        for name, gpus in on(change.before).items():
            assert now.pop(name) == gpus
        now |= on(change.after)
        assert (change.kind is ChangeKind.ALLOCATED) == (not had)
        assert (change.kind is ChangeKind.RELEASED) == (not now)

    assert now == {name: gpus for name, gpus in maps[-1].items() if gpus}


def test_only_the_newest_changes_are_returned():
    changes = gang_changes(past_of([{"a": {n % 2}} for n in range(3 * CHANGES)]), GANG)

    assert len(changes) == CHANGES
    assert changes[-1].at == 3 * CHANGES - 1
