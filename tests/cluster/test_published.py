import json
from contextlib import suppress
from dataclasses import replace

import pytest
from builders import an_nvswitch_machine, dgx1_v100
from hypothesis import given
from hypothesis import strategies as st
from strategies import JSON, machines

from cluster.keys import (
    TOPOLOGY_BANDWIDTH,
    TOPOLOGY_BANDWIDTH_ARENA,
    TOPOLOGY_DEVICES,
    TOPOLOGY_LINKS,
    TOPOLOGY_MACHINE,
)
from cluster.published import (
    Published,
    PublishedError,
    read_indices,
    read_published,
    write_published,
)
from topology.machine import Level, Machine

FOUR = {str(i): "Healthy" for i in range(4)}
FOUR_LINKS = [
    ["N-A", "NV2", "PIX", "SOC"],
    ["NV2", "N-A", "NV1", "N-A"],
    ["PIX", "NV1", "N-A", "SYS"],
    ["SOC", "N-A", "SYS", "N-A"],
]


@st.composite
def records(draw: st.DrawFn) -> Published:
    machine = draw(machines(1, 6))
    n = machine.n
    names = st.lists(st.text(max_size=5), min_size=n, max_size=n).map(tuple)
    machine = replace(
        machine,
        switched=draw(st.booleans()),
        model=draw(st.none() | st.text(max_size=9)),
        uuids=draw(st.just(()) | names),
        bus_ids=draw(st.just(()) | names),
        memory=draw(st.just(()) | st.just(tuple(range(n)))),
        warnings=draw(st.just(()) | st.just(("guessed",))),
    )
    healthy = tuple(draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    return Published(machine, healthy, draw(st.none() | st.text(max_size=9)))


def zeros(published: Published) -> list[list[float]]:
    return [[0.0] * published.machine.n] * published.machine.n


def by_links(links: object, devices: object = FOUR) -> Machine:
    data = {TOPOLOGY_LINKS: json.dumps(links), TOPOLOGY_DEVICES: json.dumps(devices)}
    return read_published(data).machine


@given(records())
def test_what_is_published_is_read_back_as_it_was(published):
    assert read_published(write_published(published, zeros(published))) == published


def test_arena_finds_its_keys():
    published = Published(dgx1_v100(), (True,) * 7 + (False,))
    data = write_published(published, [[96.444] * 8] * 8)

    assert json.loads(data[TOPOLOGY_DEVICES]) == {
        **{str(i): "Healthy" for i in range(7)},
        "7": "Unhealthy",
    }
    assert json.loads(data[TOPOLOGY_LINKS])[0] == [
        "N-A",
        "NV1",
        "NV1",
        "NV2",
        "NV2",
        "SYS",
        "SYS",
        "SYS",
    ]
    assert json.loads(data[TOPOLOGY_BANDWIDTH])[0] == [96.44] * 8
    assert data[TOPOLOGY_BANDWIDTH_ARENA] == data[TOPOLOGY_BANDWIDTH]


def test_without_our_record_the_machine_is_made_of_the_link_types():
    machine = by_links(FOUR_LINKS)

    assert machine.links == ((0, 2, 0, 0), (2, 0, 1, 0), (0, 1, 0, 0), (0, 0, 0, 0))
    assert machine.levels[0] == (Level.UNKNOWN, Level.UNKNOWN, Level.PIX, Level.SYS)
    assert machine.levels[1][3] is Level.UNKNOWN
    assert machine.numa == (0, 0, 0, 0)
    assert not machine.switched
    assert machine.warnings == ()


def test_link_types_of_an_nvswitch_are_known_by_their_sum():
    published = Published(an_nvswitch_machine(8, 12), (True,) * 8)
    data = write_published(published, zeros(published))
    del data[TOPOLOGY_MACHINE]

    assert read_published(data).machine.switched


def test_a_pair_that_is_linked_differently_each_way_is_not_linked():
    links = [["N-A", "NV2"], ["NV1", "N-A"]]

    machine = by_links(links, {"0": "Healthy", "1": "Healthy"})

    assert machine.links == ((0, 0), (0, 0))
    assert "GPU0 and GPU1" in machine.warnings[0]


def test_any_other_word_than_healthy_is_unhealthy():
    data = {
        TOPOLOGY_LINKS: '[["N-A","PIX"],["PIX","N-A"]]',
        TOPOLOGY_DEVICES: '{"0":"Healthy","1":"Degraded"}',
    }

    assert read_published(data).healthy == (True, False)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({TOPOLOGY_DEVICES: None}, "devices: missing"),
        ({TOPOLOGY_DEVICES: "["}, "devices: "),
        ({TOPOLOGY_DEVICES: '{"0":"Healthy"}'}, "devices: the keys must be the GPU indices 0 to 7"),
        ({TOPOLOGY_MACHINE: "{}"}, "machine.json: Object missing required field `v`"),
        ({TOPOLOGY_MACHINE: "[" * 100_000}, "machine.json: "),
        ({TOPOLOGY_MACHINE: None, TOPOLOGY_LINKS: None}, "linkType: missing"),
        (
            {TOPOLOGY_MACHINE: None, TOPOLOGY_LINKS: '[["N-A"],["NV1"]]'},
            "linkType: the matrix has 2",
        ),
        ({TOPOLOGY_MACHINE: None, TOPOLOGY_LINKS: "[]"}, "linkType: a machine has 1 to 16"),
        (
            {TOPOLOGY_MACHINE: None, TOPOLOGY_LINKS: '[["N-A","XY"],["XY","N-A"]]'},
            "linkType: 'XY' is no link",
        ),
    ],
    ids=str,
)
def test_a_malformed_record_is_an_error_that_names_its_key(changed, message):
    published = Published(dgx1_v100(), (True,) * 8)
    data = write_published(published, zeros(published)) | changed
    data = {key: text for key, text in data.items() if text is not None}

    with pytest.raises(PublishedError) as caught:
        read_published(data)

    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    "change",
    [
        {"v": 2},
        {"links": [[0, 1], [0, 0]]},
        {"links": [[0, -1], [-1, 0]]},
        {"levels": [["N-A", "NEAR"], ["NEAR", "N-A"]]},
        {"numa": [0]},
        {"constants": {"nvlink": 0, "pcie": 1, "bridge": 1, "socket": 1}},
        {"nics": [{"name": "mlx5_0", "levels": ["PIX"]}]},
        {"uuids": ["GPU-0"]},
    ],
    ids=str,
)
def test_our_own_record_is_checked_too(change):
    published = Published(
        by_links([["N-A", "NV2"], ["NV2", "N-A"]], {"0": "", "1": ""}), (True,) * 2
    )
    data = write_published(published, zeros(published))
    data[TOPOLOGY_MACHINE] = json.dumps(json.loads(data[TOPOLOGY_MACHINE]) | change)

    with pytest.raises(PublishedError, match=r"^machine.json: "):
        read_published(data)


@given(
    st.dictionaries(
        st.sampled_from((TOPOLOGY_DEVICES, TOPOLOGY_LINKS, TOPOLOGY_MACHINE)),
        st.text(max_size=20) | JSON.map(json.dumps),
    )
)
def test_any_data_gives_a_machine_or_a_clear_error(data):
    # Any other exception is a failure of this test.
    with suppress(PublishedError):
        assert read_published(data).machine.n


def test_health_is_told_for_every_gpu():
    with pytest.raises(PublishedError, match="health of 7 GPUs, but the machine has 8"):
        Published(dgx1_v100(), (True,) * 7)


@pytest.mark.parametrize(
    ("text", "indices", "bad"),
    [
        ("", set(), None),
        ("0", {0}, None),
        ("1, 2", {1, 2}, None),
        (" 3 ,,\t0\n", {0, 3}, None),
        ("1,x", {1}, "'x'"),
        ("4", set(), "'4'"),
        ("-1", set(), "'-1'"),
        ("٣", set(), "'٣'"),
        ("1;2", set(), "'1;2'"),
        ("9" * 5000, set(), "'" + "9" * 20 + "'"),
    ],
)
def test_a_list_of_gpus_excludes_only_what_can_be_read(text, indices, bad):
    found, warning = read_indices(text, 4)

    assert found == indices
    assert (warning is None) if bad is None else warning.startswith(f"{bad}: not an index")
