"""Reduces a cluster to what a viewer may know. Pure.

The pods of hidden namespaces become GPUs that are taken, under pseudonyms, before any view is
computed. So no view has to leave anything out.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b

from linkwise.cluster.account.ledger import Ledger
from linkwise.cluster.account.node_ledger import Holding, NodeLedger
from linkwise.cluster.memo import Memo
from linkwise.manifest.value import Value
from linkwise.views.files.current_cluster import CurrentCluster

ANOTHER = "another namespace"
"""The namespace of all hidden pods. No namespace has this name, since it has a space."""
UNKNOWN = "only those who may list all pods see why"
"""Why it is unknown which GPUs of a node are free, where the reason may name hidden pods."""


@dataclass(frozen=True, slots=True)
class Visible:
    """The namespaces whose pods and Gangs a viewer may list."""

    namespaces: frozenset[str] | None = None
    """None: all."""

    def __contains__(self, namespace: str) -> bool:
        """Return whether a namespace is visible."""
        return self.namespaces is None or namespace in self.namespaces


ALL = Visible()


def namespaces_of(current: CurrentCluster) -> Iterator[str]:
    """Yield the namespaces of a cluster, each once: first those with pods that have GPUs."""
    holdings = (
        holding
        for ledger in current.cluster.ledger.nodes.values()
        for holding in ledger.holdings.values()
    )
    names = (
        *sorted({_namespace(holding.pod) for holding in holdings if holding.gpus}),
        *sorted({pod.metadata.namespace or "default" for pod in current.cluster.pods}),
        *sorted(filter(None, map(_namespace_of, current.objects))),
    )
    yield from dict.fromkeys(names)


def seen_by(
    current: CurrentCluster,
    visible: Visible,
    key: bytes,
    memo: Memo[NodeLedger] | None = None,
) -> CurrentCluster:
    """Return a cluster without the names of hidden namespaces, and of what is in them.

    A hidden pod that holds something stays, without its name, labels and gang. One that waits, and
    all other objects of its namespace, are left out.

    Args:
        current: The cluster.
        visible: What the viewer may know.
        key: A secret of this process, from which pseudonyms are made.
        memo: Of `seen_node`; unchanged nodes are the same objects as for the cluster before.
    """
    if visible.namespaces is None:
        return current
    cluster, ledgers = current.cluster, current.cluster.ledger.nodes
    seen = (memo or Memo(seen_node)).map((ledger, visible, key) for ledger in ledgers.values())
    nodes = dict(zip(ledgers, seen, strict=True))
    conflicts = tuple(one for one in cluster.ledger.conflicts if _namespace(one.pod) in visible)
    pods = tuple(pod for pod in cluster.pods if (pod.metadata.namespace or "default") in visible)
    infos = tuple(info for info in cluster.pod_infos if info.namespace in visible)
    only = visible.namespaces if len(visible.namespaces) == 1 else {current.namespace}
    return replace(
        current,
        cluster=replace(
            cluster, ledger=Ledger(nodes, conflicts, is_sorted=True), pods=pods, pod_infos=infos
        ),
        objects=tuple(value for value in current.objects if _is_seen(value, visible)),
        gangs=tuple(gang for gang in current.gangs if _gang_namespace(gang) in visible),
        namespace=min(only),
        warnings=(*current.warnings, _note(visible)),
    )


def seen_node(ledger: NodeLedger, visible: Visible, key: bytes) -> NodeLedger:
    """Return one node as `seen_by` has it."""
    holdings = ledger.holdings.values()
    if ledger.unaccounted is None and all(_namespace(one.pod) in visible for one in holdings):
        return ledger
    seen = [one if _namespace(one.pod) in visible else _anonymous(one, key) for one in holdings]
    reason, pod = ledger.unaccounted, ledger.unaccounted_pod
    if reason is not None and not (
        pod and _namespace(pod[1]) in visible and reason.startswith(f"{pod[1]}: ")
    ):
        # What an agent reports names pods, too.
        node = replace(ledger.node, mismatch=None, machine_refused=None)
        ledger = replace(ledger, node=node, unaccounted=UNKNOWN, unaccounted_pod=None)
    return replace(ledger, holdings={holding.uid: holding for holding in seen})


def _anonymous(holding: Holding, key: bytes) -> Holding:
    """Return a holding whose pod keeps its pseudonym, so that the page does not show a change."""
    digest = blake2b(holding.uid.encode(errors="surrogatepass"), key=key, digest_size=8)
    name = f"{ANOTHER}/pod-{digest.hexdigest()}"
    return replace(holding, pod=name, uid=name, gang=None)


def _is_seen(value: Value, visible: Visible) -> bool:
    """Return whether a viewer may know an object; those without a namespace are known."""
    namespace = _namespace_of(value)
    return not namespace or namespace in visible


def _namespace_of(value: Value) -> str:
    """Return the namespace of an object, of a Namespace its name; empty: it is in none."""
    plain = value.mapping()
    metadata = plain.get("metadata")
    key = "name" if plain.get("kind") == "Namespace" else "namespace"
    return str(metadata.get(key) or "") if isinstance(metadata, dict) else ""


def _gang_namespace(gang: dict[str, object]) -> str:
    metadata = gang.get("metadata")
    return str(metadata.get("namespace")) if isinstance(metadata, dict) else ""


def _namespace(name: str) -> str:
    """Return the namespace of `namespace/name`."""
    return name.partition("/")[0]


def _note(visible: Visible) -> str:
    names = sorted(visible.namespaces or ())
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    pods = f"the pods of {shown} alone" if names else "no pods"
    return (
        f"You may list {pods}. GPUs of others show as taken without names, and others that wait "
        "may be placed before yours."
    )
