from support.dashboard import placed_pod

from linkwise.dashboard.history import History
from linkwise.dashboard.namespaces import namespace_rows

VGG = placed_pod("vgg-0", 0), placed_pod("vgg-1", 3)


def test_namespaces_that_hold_gpus_are_listed(moment):
    history = History()
    history.add(moment(*VGG, at=0))
    history.add(moment(at=1800))

    found = namespace_rows(moment(at=1800).usage, history.gpu_seconds(0, 1800))
    rows = {row.namespace: row for row in found}

    assert rows["team"].gpus == 0
    assert rows["team"].hours == 1.0
