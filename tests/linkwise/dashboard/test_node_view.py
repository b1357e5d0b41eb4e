import msgspec
from support.dashboard import nodes_in, placed_pod

from linkwise.dashboard.node_view import node_view

VGG = placed_pod("vgg-0", 0), placed_pod("vgg-1", 3)


def test_a_node_is_drawn_with_its_holders_and_links(moment):
    view = node_view(moment(*VGG), "dgx-0")

    assert [(unit.letters, unit.kind, unit.name, unit.gpus) for unit in view.units] == [
        ("A", "gang", "team/vgg", 2)
    ]
    assert len(nodes_in(view.drawing, "rect", "tile placed")) == 2
    tags = [each[2][0] for each in nodes_in(view.drawing, "text", "tag")]
    assert tags == ["A0", "A1"]
    assert len(nodes_in(view.drawing, "path", "wire lit")) == 1
    assert view.links == "The links of these GPUs are named by the cluster file."
    assert view.report.gpus_free == 6


def test_the_worth_of_free_gpus_is_that_of_the_fastest_free_sets(moment):
    empty, full = node_view(moment(), "dgx-0"), node_view(moment(*VGG), "dgx-0")

    assert [worth.size for worth in empty.worth] == [2, 4, 8]
    assert all(worth.bandwidth == worth.best for worth in empty.worth)
    assert [worth.size for worth in full.worth] == [2, 4]
    assert all(not {0, 3} & set(worth.gpus) for worth in full.worth)
    assert not node_view(moment(), "share").worth


def test_there_is_no_view_of_an_unknown_node(moment):
    assert node_view(moment(), "dgx-7") is None


def test_a_view_of_a_node_is_json(moment):
    assert msgspec.json.decode(msgspec.json.encode(node_view(moment(*VGG), "dgx-0")))
