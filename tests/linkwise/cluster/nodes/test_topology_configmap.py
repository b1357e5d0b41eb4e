import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import an_nvswitch_machine, dgx1_v100, numa_of
from support.strategies import JSON, machines

from linkwise.cluster.allocations.record import Isolation
from linkwise.cluster.keys import (
    TOPOLOGY_BANDWIDTH,
    TOPOLOGY_BANDWIDTH_ARENA,
    TOPOLOGY_BUSY,
    TOPOLOGY_DEVICES,
    TOPOLOGY_ISOLATION,
    TOPOLOGY_LINKS,
    TOPOLOGY_MACHINE,
    TOPOLOGY_MISMATCH,
)
from linkwise.cluster.nodes.kubelet_policy import CPUManager, KubeletPolicy, TopologyManager
from linkwise.cluster.nodes.topology_configmap import (
    PublishedError,
    PublishedTopology,
    read_indices,
    read_published,
    write_published,
)
from linkwise.topology.machine import MAX_GPUS, Level, Machine, gpu_records

FOUR = {str(i): "Healthy" for i in range(4)}
EIGHT = {str(i): "Unhealthy" if i == 7 else "Healthy" for i in range(8)}
FOUR_LINKS = [
    ["N-A", "NV2", "PIX", "SOC"],
    ["NV2", "N-A", "NV1", "N-A"],
    ["PIX", "NV1", "N-A", "SYS"],
    ["SOC", "N-A", "SYS", "N-A"],
]


@st.composite
def records(draw: st.DrawFn) -> PublishedTopology:
    machine = draw(machines(1, 6))
    n = machine.n
    names = st.lists(st.text(max_size=5), min_size=n, max_size=n).map(tuple)
    machine = replace(
        machine,
        gpus=gpu_records(
            numa_of(machine),
            uuids=draw(st.just(()) | names),
            bus_ids=draw(st.just(()) | names),
            memory=draw(st.just(()) | st.just(tuple(range(n)))),
        ),
        switched=draw(st.booleans()),
        model=draw(st.none() | st.text(max_size=9)),
        warnings=draw(st.just(()) | st.just(("guessed",))),
    )
    healthy = tuple(draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    driver = draw(st.none() | st.text(max_size=9))
    mismatch = draw(st.none() | st.text("abc", min_size=1, max_size=9))
    isolation = draw(st.none() | st.sampled_from(Isolation))
    kubelet = draw(
        st.builds(
            KubeletPolicy,
            st.none() | st.sampled_from(CPUManager),
            st.none() | st.sampled_from(TopologyManager),
        )
    )
    busy = draw(st.dictionaries(st.text(max_size=64), st.text(max_size=9), max_size=MAX_GPUS))
    return PublishedTopology(
        machine, healthy, driver, mismatch=mismatch, isolation=isolation, kubelet=kubelet, busy=busy
    )


def zeros(published: PublishedTopology) -> list[list[float]]:
    return [[0.0] * published.machine.n] * published.machine.n


def by_links(links: object, devices: object = FOUR) -> Machine:
    data = {TOPOLOGY_LINKS: json.dumps(links), TOPOLOGY_DEVICES: json.dumps(devices)}
    return read_published(data).machine


@given(records())
def test_published_topology_is_read_back_as_written(published):
    assert read_published(write_published(published, zeros(published))) == published


def test_policy_of_a_later_kubelet_is_unknown():
    published = PublishedTopology(dgx1_v100(), (True,) * 8)
    data = write_published(published, zeros(published))
    later = {"cpuManager": "static", "topologyManager": "by-a-later-release"}
    data[TOPOLOGY_MACHINE] = json.dumps(json.loads(data[TOPOLOGY_MACHINE]) | later)

    assert read_published(data) == replace(published, kubelet=KubeletPolicy(CPUManager.STATIC))


@pytest.mark.parametrize(
    ("data", "isolation"),
    [
        ({}, None),
        ({TOPOLOGY_ISOLATION: "mps"}, Isolation.MPS),
        ({TOPOLOGY_ISOLATION: "none"}, Isolation.NONE),
        ({TOPOLOGY_ISOLATION: "everything"}, Isolation.NONE),
    ],
    ids=["missing", "mps", "none", "unknown"],
)
def test_isolation_of_an_agent_is_read(data, isolation):
    assert read_published(data).isolation is isolation


def test_a_long_mismatch_is_cut_off_and_a_blank_one_is_none():
    published = replace(PublishedTopology(dgx1_v100(), (True,) * 8), mismatch="x" * 5000)

    assert read_published(write_published(published, zeros(published))).mismatch == "x" * 1024
    assert read_published({TOPOLOGY_MISMATCH: "y" * 5000}).mismatch == "y" * 1024
    assert read_published({TOPOLOGY_MISMATCH: " "}).mismatch is None


def test_a_long_text_about_a_gpu_is_cut_off():
    published = replace(PublishedTopology(dgx1_v100(), (True,) * 8), busy={"GPU-1": "x" * 999})

    assert read_published(write_published(published, zeros(published))).busy == {"GPU-1": "x" * 200}
    assert read_published({TOPOLOGY_BUSY: json.dumps({"a": "y" * 999})}).busy == {"a": "y" * 200}


@pytest.mark.parametrize(
    "busy",
    [
        "{",
        "[]",
        '{"GPU-1": 1}',
        json.dumps({"u" * 65: ""}),
        json.dumps(dict.fromkeys(range(17), "")),
    ],
    ids=["no JSON", "a list", "no text", "a long UUID", "more GPUs than a machine has"],
)
def test_unreadable_busy_gpus_are_none_with_a_warning(busy):
    published = read_published({TOPOLOGY_BUSY: busy})

    assert published.busy == {}
    assert any(warning.startswith("busy: ") for warning in published.warnings)


def test_arena_finds_its_keys():
    published = PublishedTopology(dgx1_v100(), (True,) * 7 + (False,))
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
    assert numa_of(machine) == (0, 0, 0, 0)
    assert not machine.switched
    assert machine.warnings == ()


def test_link_types_of_an_nvswitch_are_known_by_their_sum():
    published = PublishedTopology(an_nvswitch_machine(8, 12), (True,) * 8)
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


# ---- What cannot be read.


@pytest.mark.parametrize(
    ("changed", "linked", "unhealthy", "warnings"),
    [
        pytest.param({TOPOLOGY_DEVICES: None}, "whole", [], ["devices: missing"], id="no health"),
        pytest.param({TOPOLOGY_DEVICES: "["}, "whole", [], ["devices: "], id="no JSON of health"),
        pytest.param(
            {TOPOLOGY_DEVICES: '{"2":"Unhealthy","3":"Healthy"}'},
            "whole",
            [2],
            ["devices: nothing of GPU 0, 1, 4, 5, 6, 7: taken for healthy"],
            id="health of some",
        ),
        pytest.param(
            {TOPOLOGY_DEVICES: json.dumps({**EIGHT, "3": None, "x": "Unhealthy", "8": ""})},
            "whole",
            [7],
            ["devices: '3', 'x', '8': not the health of one of 8 GPUs"],
            id="health that is none",
        ),
        pytest.param(
            {TOPOLOGY_MACHINE: "{}"},
            "by its link types",
            [7],
            ["machine.json: Object missing required field `v`"],
            id="no record",
        ),
        pytest.param(
            {TOPOLOGY_MACHINE: "[" * 100_000},
            "by its link types",
            [7],
            ["machine.json: "],
            id="bomb",
        ),
        pytest.param(
            {TOPOLOGY_MACHINE: None, TOPOLOGY_LINKS: None},
            None,
            [7],
            ["linkType: missing"],
            id="no links",
        ),
        pytest.param(
            {TOPOLOGY_MACHINE: "", TOPOLOGY_LINKS: "?"},
            None,
            [7],
            ["machine.json: ", "linkType: "],
            id="no record and no links",
        ),
        pytest.param(
            {TOPOLOGY_MACHINE: None, TOPOLOGY_LINKS: '[["N-A"],["NV1"]]'},
            None,
            [7],
            ["linkType: the matrix has 2"],
            id="ragged links",
        ),
        pytest.param(
            {TOPOLOGY_MACHINE: None, TOPOLOGY_LINKS: "[]"},
            None,
            [7],
            ["linkType: a machine has 1 to 16"],
            id="links of no GPU",
        ),
        pytest.param(
            dict.fromkeys((TOPOLOGY_MACHINE, TOPOLOGY_LINKS, TOPOLOGY_DEVICES)),
            None,
            [],
            ["linkType: missing", "devices: missing"],
            id="nothing",
        ),
    ],
)
def test_readable_keys_are_kept_and_others_are_warned_of(changed, linked, unhealthy, warnings):
    published = PublishedTopology(dgx1_v100(), (True,) * 7 + (False,))
    whole = write_published(published, zeros(published))
    links = read_published({**whole, TOPOLOGY_MACHINE: "{}"}).machine
    data = {key: text for key, text in (whole | changed).items() if text is not None}

    found = read_published(data)

    assert links.links == dgx1_v100().links
    assert found.machine == {"whole": dgx1_v100(), "by its link types": links, None: None}[linked]
    assert sorted(found.unhealthy) == unhealthy
    assert len(found.warnings) == len(warnings)
    for warning, start in zip(found.warnings, warnings, strict=True):
        assert warning.startswith(start)


def test_unknown_link_leaves_one_pair_unlinked_with_a_warning():
    links = [list(row) for row in FOUR_LINKS]
    links[0][1] = links[1][0] = "XY"

    machine = by_links(links)

    whole = by_links(FOUR_LINKS)
    assert machine.links == ((0, 0, 0, 0), (0, 0, 1, 0), (0, 1, 0, 0), (0, 0, 0, 0))
    assert machine.levels == whole.levels
    (warning,) = machine.warnings
    assert warning.startswith("GPU0 and GPU1: 'XY' is no link: NV1, NV2, … or one of N-A, ")
    assert warning.endswith(": not linked")


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
    published = PublishedTopology(
        by_links([["N-A", "NV2"], ["NV2", "N-A"]], {"0": "", "1": ""}), (True,) * 2
    )
    data = write_published(published, zeros(published))
    data[TOPOLOGY_MACHINE] = json.dumps(json.loads(data[TOPOLOGY_MACHINE]) | change)

    (warning,) = read_published(data).warnings
    assert warning.startswith("machine.json: ")


@given(
    st.dictionaries(
        st.sampled_from((TOPOLOGY_LINKS, TOPOLOGY_MACHINE)),
        st.text(max_size=20) | JSON.map(json.dumps),
    ),
    st.lists(st.booleans(), max_size=16),
)
def test_whatever_else_is_published_the_gpus_that_are_called_unhealthy_are(data, healthy):
    words = {str(i): "Healthy" if ok else "Unhealthy" for i, ok in enumerate(healthy)}

    found = read_published({**data, TOPOLOGY_DEVICES: json.dumps(words)})

    n = found.machine.n if found.machine else len(healthy)
    unhealthy = {i for i, ok in enumerate(healthy) if not ok}
    assert found.unhealthy == unhealthy & set(range(n))
    assert len(found.healthy) == n


@given(st.text(max_size=20) | JSON.map(json.dumps))
def test_any_health_text_is_read_or_warned_of(text):
    found = read_published({TOPOLOGY_DEVICES: text})

    assert found.machine is None
    assert found.warnings[0] == "linkType: missing"


def test_health_is_published_for_every_gpu():
    with pytest.raises(PublishedError, match="health of 7 GPUs, but the machine has 8"):
        PublishedTopology(dgx1_v100(), (True,) * 7)


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
