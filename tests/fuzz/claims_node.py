"""Fuzz target for claims nodes: slices of a node, claims that hold devices of it, and rules."""

from contextlib import suppress

import msgspec
from msgspec import Struct

from linkwise.cluster.allocations.device_claim import DeviceRequest
from linkwise.cluster.nodes.device_claims import ClaimObject
from linkwise.cluster.nodes.device_pool import NO_SLICES
from linkwise.cluster.nodes.node_devices import NodeDevices, devices_by_node
from linkwise.cluster.nodes.node_resources import NodeError, NodeObject
from linkwise.cluster.nodes.resource_slice import SliceObject
from linkwise.cluster.nodes.taint_rules import RuleObject
from linkwise.planning.state.node_info import build_node
from linkwise.policy.snapshot import PolicySnapshot
from linkwise.runtime.kube.errors import UNDECODABLE
from linkwise.topology.errors import TopologyError
from linkwise.topology.machine import MAX_GPUS


class _Input(Struct, frozen=True):
    node: NodeObject = NodeObject()
    slices: tuple[SliceObject, ...] = ()
    claims: tuple[ClaimObject, ...] = ()
    rules: tuple[RuleObject, ...] = ()


def devices(data: bytes) -> None:
    """The devices of nodes: now, and after all slices have vanished."""
    with suppress(*UNDECODABLE, NodeError, TopologyError):
        given = msgspec.json.decode(data, type=_Input)
        slices, claims, rules = (
            [one.content for one in each if one.content is not None]
            for each in (given.slices, given.claims, given.rules)
        )
        for name, found in devices_by_node(slices, claims, rules).items():
            _check(given.node, found)
            vanished = NodeDevices(name, claims=found.claims).after(found)
            assert vanished.own_pool.gpus == found.own_pool.gpus
            assert not vanished.own_pool.gpus or vanished.own_pool.missing == NO_SLICES
            _check(given.node, vanished)


def _check(raw: NodeObject, found: NodeDevices) -> None:
    node = build_node(raw, {}, PolicySnapshot(), found)
    if node.pool is None:
        return
    assert len(node.cards) == len(node.pool.devices) <= MAX_GPUS
    assert node.machine is None or node.machine.n == len(node.cards)
    # That of a lost GPU may not be known.
    uuids = [card.uuid for card in node.cards if card.uuid or not card.faulty]
    assert len(set(uuids)) == len(uuids)
    # A node writes its UUIDs, and they become part of an expression.
    assert not any(set(uuid or "") & set("'\"\\ ") for uuid in uuids)
    held = found.claimed
    assert all(card.is_closed for card in node.cards if card.uuid in held.uuids)
    assert DeviceRequest("gpu", len(uuids), tuple(map(str, uuids))).body
