"""Fuzz target for objects of a watch: Nodes, owners of pods, Gangs, requests of nodes, bad pods."""

from contextlib import suppress

import msgspec

from linkwise.cluster.nodes.node_resources import NodeError, NodeObject
from linkwise.planning.gang.crd import read_gang
from linkwise.planning.state.node_info import NodeConfigMap, build_node
from linkwise.planning.state.workloads import read_job, read_stateful_set
from linkwise.policy.snapshot import PolicySnapshot
from linkwise.runtime.kube.decode import decode
from linkwise.runtime.kube.errors import UNDECODABLE
from linkwise.runtime.kube.paging import Page
from linkwise.runtime.kube.paths import is_segment
from linkwise.topology.errors import TopologyError
from scorer.cache.pods.partial_pod import read_pod
from scorer.scale_up.crd import ProvisioningRequest

_node_decoder = msgspec.json.Decoder(NodeObject)
_map_decoder = msgspec.json.Decoder(dict[str, NodeConfigMap])
_requests_decoder = msgspec.json.Decoder(Page[ProvisioningRequest])
_json_decoder = msgspec.json.Decoder(dict[str, object])


def objects(data: bytes) -> None:
    for read in (read_job, read_stateful_set, read_gang):
        with suppress(*UNDECODABLE):
            read(data)
    with suppress(*UNDECODABLE):
        decode(data, _json_decoder)
        # An API server sends nothing else. A pod that cannot be decoded is read part by part.
        read_pod(data)
    with suppress(*UNDECODABLE):
        for request in _requests_decoder.decode(data).items or ():
            # An API server sends no object of this kind without a namespace.
            if not is_segment(request.metadata.namespace):
                continue
            assert all(path.startswith("/api") for path in request.templates)
            assert request.is_final or not request.has_failed
    with suppress(*UNDECODABLE, NodeError, TopologyError):
        _node(data)


def _node(data: bytes) -> None:
    """Build a node; its ConfigMaps stand beside it, in the field `maps`."""
    raw = _node_decoder.decode(data)
    maps = msgspec.json.decode(data, type=dict[str, msgspec.Raw]).get("maps", msgspec.Raw(b"{}"))
    found = {}
    with suppress(*UNDECODABLE):
        found = _map_decoder.decode(maps)
    build_node(raw, found, PolicySnapshot())
