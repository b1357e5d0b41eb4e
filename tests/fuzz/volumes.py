"""Fuzz target for claims, volumes, classes and limits of nodes, and for pods that name them."""

from contextlib import suppress
from dataclasses import replace

from msgspec import Raw, Struct, json
from support.builders import a_node, a_pcie_machine

from linkwise.cluster.account.accounting import ledger_of
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.volumes.objects import VolumeObjects
from linkwise.planning.gang.pod_info import pod_info
from linkwise.planning.gang.pod_volumes import with_volumes
from linkwise.planning.placement.schedule import plan
from linkwise.planning.placement.state.snapshot import snapshot_of
from linkwise.runtime.kube.errors import UNDECODABLE
from scorer.cache.volumes.volume_informer import read_claim, read_class, read_limits, read_volume

_EMPTY = Raw(b"{}")
_NODES = [a_node(name, a_pcie_machine(2, socket=2)) for name in ("n1", "n2")]
_TABLES = snapshot_of(ledger_of(_NODES, ())).tables


class _Input(Struct, frozen=True):
    pod: Pod = Pod()
    claim: Raw = _EMPTY
    volume: Raw = _EMPTY
    made_by: Raw = _EMPTY
    limits: Raw = _EMPTY


def volumes(data: bytes) -> None:
    """A pod that waits with its volumes, on a node that has limits."""
    with suppress(*UNDECODABLE):
        given = json.decode(data, type=_Input)
        claim, volume = read_claim(given.claim), read_volume(given.volume)
        known = VolumeObjects(
            dict.fromkeys((("default", "data"), ("default", "pod-data")), claim),
            {("", claim.volume or "pv"): volume},
            {("", claim.storage_class): read_class(given.made_by)},
        )
        pod = with_volumes(pod_info(given.pod), known, lambda _: ())
        member = pod.member or pod.ungated
        if member is None or member.violation is not None or pod.unplannable:
            return
        assert member.volumes is None or hash(member.volumes.kind) is not None
        first, *others = _NODES
        limited = replace(first, attach_limits=read_limits(given.limits) or ())
        ledger = ledger_of([limited, *others], [])
        plan(snapshot_of(ledger, _TABLES), [member])
