from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from linkwise.cluster.gang import GangKey
from linkwise.dashboard.history import BYTES, History
from linkwise.dashboard.moment import UnitRow
from linkwise.views.render.page.rows import NodeRow


def row(name: str, states: str) -> NodeRow:
    return NodeRow(name, "", "", "topology", "", states, 0, states.count("."), 0, False, (), ())


def unit(name: str, priority: int) -> UnitRow:
    return UnitRow("gang", "team", name, "1 GPU", 1, "", priority)


def at_time(
    at: float,
    nodes: dict[str, str],
    usage: dict[str, int] | None = None,
    units: dict[str, int] | None = None,
):
    """A moment with the values that the history reads."""
    rows = {name: row(name, states) for name, states in nodes.items()}
    held = [SimpleNamespace(namespace=name, gpus=gpus) for name, gpus in (usage or {}).items()]
    waiting = {
        GangKey("team", name, ""): unit(name, priority) for name, priority in (units or {}).items()
    }
    return SimpleNamespace(
        at=at, rows=rows, usage=held, units=waiting, waiting=len(waiting), free_sets=(0, 0, 1, 2)
    )


MAPS = st.lists(
    st.dictionaries(st.sampled_from("abc"), st.sampled_from(("..", "#.", "##"))), min_size=1
)


@given(MAPS)
def test_every_moment_that_is_kept_is_shown_again(maps):
    history = History()
    for at, nodes in enumerate(maps):
        history.add(at_time(at, nodes))

    for at, nodes in enumerate(maps):
        assert {name: each.states for name, each in history.at(at).items()} == nodes


@given(
    st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(0, 2)), min_size=1), st.booleans()
)
def test_what_waited_at_every_moment_is_shown_again_in_order(moments, nodes_change):
    history = History()
    for at, units in enumerate(moments):
        nodes = {"n": "#." if at % 2 else ".."} if nodes_change else {}
        history.add(at_time(at, nodes, units=units))

    for at, units in enumerate(moments):
        rows = history.waiting_at(at)
        assert {row.name: row.priority for row in rows} == units
        assert [row.priority for row in rows] == sorted(units.values(), reverse=True)


@given(MAPS)
def test_a_client_that_applies_changes_has_the_map(maps):
    history, has, version = History(), {}, None
    for at, nodes in enumerate(maps):
        history.add(at_time(at, nodes))
        if at % 2 and version is not None:
            continue
        changed = None if version is None else history.changed_since(version)
        if changed is None:
            has, changed = {}, set(history.rows)
        for name in changed:
            has.pop(name, None)
            if name in history.rows:
                has[name] = history.rows[name]
        version = history.version
        assert has == history.rows


def test_only_changes_after_a_version_are_sent():
    history = History()
    history.add(at_time(0, {"a": "..", "b": ".."}))
    history.add(at_time(1, {"a": "#.", "b": ".."}))

    assert history.changed_since(1) == {"a"}
    assert history.changed_since(2) == set()
    assert history.changed_since(0) is None
    assert history.changed_since(3) is None


def test_the_past_is_bounded_in_time():
    history = History(seconds=10)
    for at in range(100):
        history.add(at_time(at, {"a": "#." if at % 2 else ".."}))

    assert history.start == 89
    assert history.at(0)["a"].states == history.at(89)["a"].states == "#."


def test_the_past_is_bounded_in_bytes():
    history = History(max_bytes=1000)
    for at in range(100):
        history.add(at_time(at, {"a": "#." if at % 2 else ".."}))

    assert history._size <= 1000
    assert history.start > 50
    assert history.at(history.start)["a"].states == ".#"[int(history.start) % 2] + "."
    assert BYTES > 1000


def test_what_waited_is_bounded_in_bytes():
    history = History(max_bytes=1000)
    for at in range(100):
        history.add(at_time(at, {}, units={f"unit-{at}": 0}))

    assert history._size <= 1000
    assert history.start > 50
    assert [row.name for row in history.waiting_at(0)] == [f"unit-{int(history.start)}"]


USAGES = st.lists(
    st.dictionaries(st.sampled_from("abc"), st.integers(0, 8)), min_size=1, max_size=12
)


@given(USAGES, st.integers(0, 15))
def test_gpu_time_is_that_of_the_namespaces_until_a_moment(usages, until):
    history = History()
    for at, usage in enumerate(usages):
        history.add(at_time(at, {}, usage))

    until, seconds = min(until, len(usages) - 1), dict[str, int]()
    for usage in usages[:until]:
        for name, gpus in usage.items():
            seconds[name] = seconds.get(name, 0) + gpus
    assert history.gpu_seconds(0, until) == {name: each for name, each in seconds.items() if each}


def test_gpu_time_is_that_of_the_time_that_is_kept():
    history = History(seconds=10)
    for at in range(100):
        history.add(at_time(at, {"n": "#." if at % 2 else ".."}, {"a": 2, "b": at % 2}))

    assert history.gpu_seconds(history.window(99), 99) == {"a": 20, "b": 5}
    assert History().gpu_seconds(0, 99) == {}


def test_gpu_time_goes_on_while_nothing_changes_and_is_that_of_the_window():
    history = History(seconds=3600)
    history.add(at_time(0, {}, {"a": 2}))

    assert history.gpu_seconds(history.window(1800), 1800) == {"a": 2 * 1800}
    assert history.gpu_seconds(history.window(3 * 3600), 3 * 3600) == {"a": 2 * 3600}


def test_a_clock_that_goes_back_counts_no_time():
    history = History()
    history.add(at_time(100, {}, {"a": 2}))
    history.add(at_time(50, {}, {"a": 2}))

    assert history.gpu_seconds(history.window(50), 50) == {}


def test_samples_are_at_most_one_a_second():
    history = History()
    for step in range(100):
        history.add(at_time(step / 10, {"a": ".."}))

    assert len(history.samples) <= 12
    assert history.samples[-1].at == 9.9
