"""Reads one namespace for someone who may not read the cluster: pods, Gangs, owners and Events."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import msgspec
from msgspec import Struct

from linkwise.cluster.keys import SCORER
from linkwise.planning.gang.crd import gangs_of
from linkwise.planning.gang.events import POD_WAITS, EventReason
from linkwise.runtime.kube.paths import api_path
from linkwise.views.files.cluster_file import collect_objects
from linkwise.views.files.current_cluster import CurrentCluster, current_cluster
from linkwise.views.files.objects import Plain
from linkwise.views.live.api_reader import ApiReader, Forbidden, NotFound
from linkwise.views.live.fetch import read_owners, read_pod_groups, waiting_members
from linkwise.views.live.kubeconfig import Access
from linkwise.views.live.load import value_of
from linkwise.views.live.missing_role import ROLE
from linkwise.views.live.snapshot import reduced
from linkwise.views.live.user_kube import UserKube

NARROW = (
    "You may not read nodes and the pods of all namespaces: this is what Linkwise has written in "
    f"your namespace, and its answer about your pods. For what would help, ask for the "
    f"ClusterRole {ROLE}."
)


@dataclass(frozen=True, slots=True)
class OwnNamespace:
    """What someone with a role in one namespace may read of it."""

    current: CurrentCluster
    """Its pods, Gangs and owners; it has no nodes."""
    said: Mapping[str, str]
    """By uid of a pod: why it waits, as the last Event of the scorer says."""
    pods: Mapping[str, Plain]
    """Its pods by name, reduced as in a snapshot."""


class _Source(Struct, frozen=True):
    component: str = ""


class _Event(Struct, frozen=True, rename="camel"):
    reason: str = ""
    message: str = ""
    last_timestamp: str | None = None
    source: _Source = _Source()


def load_own_namespace(access: Access, namespace: str | None, pod: str | None) -> OwnNamespace:
    """Return what the user of a kubeconfig may read of a namespace.

    Args:
        access: Chooses the cluster.
        namespace: The namespace; None: that of the context.
        pod: Name of a pod whose Events are read; None: of none.

    Raises:
        InputError: Its pods and Gangs may not be read, or there is no answer; one line for people.
    """
    return asyncio.run(_load(access, namespace, pod))


async def _load(access: Access, namespace: str | None, pod: str | None) -> OwnNamespace:
    async with await UserKube.of(access) as kube:
        reader, home = ApiReader(kube), namespace or kube.namespace
        pods, gangs = await asyncio.gather(_pods(reader, home), _gangs(reader, home))
        waiting = list(waiting_members(pods))
        owners = await read_owners(reader, waiting)
        groups = await read_pod_groups(reader, waiting)
        named = {plain["metadata"]["name"]: plain for plain in pods}
        uids = [named[pod]["metadata"].get("uid", "")] if pod in named else []
        said = {uid: await _said(reader, home, uid) for uid in uids}
    values = (value_of(plain, kube.server) for plain in (*pods, *owners, *groups))
    current = current_cluster(collect_objects(values, kube.server), home, kube.server)
    current = replace(current, gangs=tuple(gangs), warnings=(NARROW,))
    return OwnNamespace(current, said, named)


async def _pods(reader: ApiReader, namespace: str) -> list[Plain]:
    path = api_path("v1", "namespaces", namespace, "pods")
    try:
        return await reader.collection(path, partial(reduced, "Pod"))
    except Forbidden as error:
        reader.fail(f"{error}. Ask for the role view in namespace {namespace}.")


async def _gangs(reader: ApiReader, namespace: str) -> list[Plain]:
    try:
        return await reader.collection(gangs_of(namespace), lambda gang: gang)
    except NotFound:
        return []
    except Forbidden as error:
        reader.fail(f"{error}. Ask for the ClusterRole linkwise-user in namespace {namespace}.")


async def _said(reader: ApiReader, namespace: str, uid: str) -> str:
    """Return why a pod waits for its GPUs by the last Event about it; empty: none says so."""
    path = api_path("v1", "namespaces", namespace, "events")
    selected = {"involvedObject.uid": uid, "reason": EventReason.POD_WAITING.value}
    try:
        events = await reader.collection(path, partial(msgspec.convert, type=_Event), selected)
    except (Forbidden, NotFound):
        return ""
    ours = [event for event in events if event.source.component == SCORER]
    last = max(ours, key=lambda event: event.last_timestamp or "", default=_Event())
    return last.message.removeprefix(POD_WAITS)
