import pytest

from linkwise.cluster.keys import MODE, NODE_CGPU, NODE_GPUSHARE, NODE_MODE, NODE_PLACEMENT
from linkwise.cluster.mode import NodeMode, PackingStrategy, read_mode, read_placement, with_alias


@pytest.mark.parametrize(
    ("labels", "mode"),
    [
        ({}, NodeMode.DEFAULT),
        ({NODE_MODE: "core_mem"}, NodeMode.CORE_MEM),
        ({NODE_GPUSHARE: "true"}, NodeMode.SHARE),
        ({NODE_CGPU: "true"}, NodeMode.CGPU),
        ({NODE_CGPU: "true", NODE_GPUSHARE: "true"}, NodeMode.CGPU),
        ({NODE_GPUSHARE: "false"}, NodeMode.DEFAULT),
        ({NODE_GPUSHARE: "true", NODE_MODE: "default"}, NodeMode.DEFAULT),
        ({NODE_GPUSHARE: "true", MODE: "default"}, NodeMode.DEFAULT),
        ({MODE: "mig"}, NodeMode.MIG),
        ({MODE: "mps", NODE_MODE: "mps"}, NodeMode.MPS),
    ],
    ids=str,
)
def test_the_mode_is_the_label_or_an_older_one(labels, mode):
    assert read_mode(labels) == (mode, None)


@pytest.mark.parametrize("word", ["Topology", "", "exclusive"])
def test_a_node_of_an_unknown_mode_is_left_alone_with_a_warning(word):
    mode, warning = read_mode({NODE_MODE: word})

    assert mode is NodeMode.DISABLED
    assert f"{NODE_MODE}={word}" in warning
    assert "core_mem" in warning


@pytest.mark.parametrize("default", PackingStrategy)
def test_placement_is_what_the_label_says_else_the_default(default):
    assert read_placement({}, default) == (default, None)
    for word in PackingStrategy:
        assert read_placement({NODE_PLACEMENT: word.value}, default) == (word, None)


@pytest.mark.parametrize("default", PackingStrategy)
@pytest.mark.parametrize("word", ["random", "Spread", ""])
def test_invalid_placement_label_is_reported_and_the_default_applies(word, default):
    placement, warning = read_placement({NODE_PLACEMENT: word}, default)

    assert placement is default
    assert warning == f"{NODE_PLACEMENT}={word} is neither binpack nor spread: {default} is taken"


@pytest.mark.parametrize(
    ("mode", "ours", "memory", "compute"),
    [
        (NodeMode.DEFAULT, False, False, False),
        (NodeMode.TOPOLOGY, True, False, False),
        (NodeMode.SHARE, True, True, False),
        (NodeMode.CGPU, True, True, False),
        (NodeMode.CORE_MEM, True, True, True),
        (NodeMode.MPS, True, True, True),
        (NodeMode.TIMESLICE, True, False, False),
        (NodeMode.MIG, False, False, False),
        (NodeMode.DISABLED, False, False, False),
    ],
)
def test_each_mode_gives_out_what_the_protocol_says(mode, ours, memory, compute):
    assert (mode.is_ours, mode.shares_memory, mode.shares_compute) == (ours, memory, compute)


@pytest.mark.parametrize("key", [MODE, NODE_MODE])
def test_an_unknown_mode_is_named_with_its_label(key):
    mode, warning = read_mode({key: "exclusive"})

    assert (mode, warning.startswith(f"{key}=exclusive is no mode")) == (NodeMode.DISABLED, True)


def test_a_node_whose_labels_disagree_is_left_alone_with_a_warning():
    mode, warning = read_mode({MODE: "share", NODE_MODE: "topology"})

    assert mode is NodeMode.DISABLED
    assert f"{MODE}=share and {NODE_MODE}=topology disagree" in warning


def test_a_node_without_the_alias_has_its_mode_and_a_warning():
    mode, warning = read_mode({MODE: "topology"})

    assert mode is NodeMode.TOPOLOGY
    assert f"label it {NODE_MODE}=topology, too" in warning


@pytest.mark.parametrize(
    ("labels", "completed"),
    [
        ({MODE: "share"}, {MODE: "share", NODE_MODE: "share"}),
        ({MODE: "share", NODE_MODE: "mps"}, {MODE: "share", NODE_MODE: "mps"}),
        ({NODE_MODE: "mps"}, {NODE_MODE: "mps"}),
        ({}, {}),
    ],
    ids=str,
)
def test_the_alias_is_completed_as_the_api_server_does(labels, completed):
    assert with_alias(labels) == completed
