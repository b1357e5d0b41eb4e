"""No number in an object ends the live page, or one of its views."""

import json

import pytest
from msgspec import Raw, ValidationError
from support.builders import a_pod, node_object, placed_pod
from support.dra import a_claim, a_device, a_slice
from support.integers import VALUES, integers, with_number

from linkwise.cluster import keys
from linkwise.cluster.allocations.gpus import GPUShare
from linkwise.cluster.nodes.node_resources import NodeObject
from linkwise.cluster.nodes.resource_slice import SliceObject
from linkwise.cluster.objects.pod import Pod
from linkwise.dashboard.gang_changes import Past
from linkwise.dashboard.moment import Moment
from linkwise.dashboard.namespaces import namespace_rows
from linkwise.dashboard.node_view import node_view
from linkwise.dashboard.unit_view import unit_views, waiting_view
from linkwise.views.live.live_cluster import LiveCluster, read_node, read_object
from linkwise.views.live.live_pods import LivePods


def numbered(plain, shape, number):
    """Yield an object for each of its integers, which is this number there."""
    for at, place in enumerate(integers(shape)):
        raw = with_number(plain, place, number)
        metadata = {**raw["metadata"], "name": f"{plain['metadata']['name']}-{at}"}
        yield {**raw, "metadata": {**metadata, "uid": metadata["name"]}}


def read(reader, plains):
    """Return the objects that can be read: a watch leaves out the others."""
    found = []
    for plain in plains:
        try:
            found.append(reader(Raw(json.dumps(plain).encode())))
        except ValidationError:
            continue
    return found


@pytest.mark.parametrize("number", VALUES)
def test_no_number_of_an_object_ends_a_view(number):
    labels = {keys.NODE_MODE: "topology"}
    share = {keys.NODE_MODE: "core_mem", keys.GFD_COUNT: str(number), keys.GFD_MEMORY: str(number)}
    nodes = [
        *numbered(node_object("a", labels, **{keys.GPU_WHOLE: "8"}), NodeObject, number),
        node_object("a", labels, **{keys.GPU_WHOLE: "8"}),
        node_object("share", share, **{keys.GPU_MEM: str(number), keys.GPU_CORE: str(number)}),
        node_object("claims", labels),
    ]
    placed = placed_pod("x", {keys.GPU_WHOLE: 1}, "a", GPUShare(0, "GPU-0"))
    waiting = a_pod({keys.GPU_WHOLE: 1}, schedulingGates=[{"name": keys.GANG}])
    waiting["metadata"] = {"name": "w", "namespace": "team", "annotations": {keys.GANG: "g"}}
    sized = {keys.GANG: "g", keys.GANG_SIZE: str(number), keys.ALLOCATION: str(number)}
    marked = {**waiting, "metadata": {**waiting["metadata"], "name": "m", "annotations": sized}}
    pods = [each for pod in (placed, waiting) for each in numbered(pod, Pod, number)]
    slices = list(numbered(a_slice(a_device(0), node="claims"), SliceObject, number))
    claims = [a_claim("gpu-0", node="claims")]

    state = LiveCluster("https://here", "default").state(
        {each.node.metadata.name: each for each in read(read_node, nodes)},
        read(LivePods().read, [*pods, marked]),
        [
            {**item, "apiVersion": "resource.k8s.io/v1"}
            for kind, plains in (("ResourceSlice", slices), ("ResourceClaim", claims))
            for item in read(lambda raw, kind=kind: read_object(kind, raw), plains)
        ],
    )
    moment = Moment(state, 0.0)

    assert {"a", "claims"} <= moment.rows.keys()
    assert all(node_view(moment, name) for name in moment.rows)
    assert waiting_view(moment)
    for key, row in moment.units.items():
        unit_views(moment, Past({}, ()), row.kind, key.namespace, key.name)
    assert namespace_rows(moment.usage, {})
