"""Everything of a live cluster that tells who has which GPU, as a snapshot keeps it."""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import msgspec
from msgspec import Struct
from typer import echo

from cli.live.api_reader import ApiReader, Forbidden, NotThere
from cli.live.kubeconfig import Access, load_person
from cli.live.snapshot import Plain, ordered, reduced, written
from cli.render.output import Format, warn
from cluster import keys
from cluster.gang import gang_mark
from cluster.pod import Metadata, Owner, Pod
from scorer.gang.crd import GANGS
from scorer.gang.owners import group_paths, path_of

ROLE = "linkwise-view"
"""The ClusterRole, and the Role in `_HOMES`, that ship for people who look at a cluster."""
_CORE = "/api/v1"
_HOMES = {keys.PROFILE_NAMESPACE, keys.POLICY_NAMESPACE}
"""Namespaces of the ConfigMaps that are read."""


class _Object(Struct, frozen=True):
    metadata: Metadata = Metadata()


@dataclass(slots=True)
class Fetched:
    """What was read of a cluster."""

    server: str
    """Its address, as messages name it."""
    namespace: str
    """Where things are that do not say it."""
    objects: list[Plain] = field(default_factory=list)
    """In the order of a snapshot."""
    gangs: list[Plain] = field(default_factory=list)
    """The Gang objects, as they are."""
    warnings: list[str] = field(default_factory=list)
    """What could not be read, for people."""


def fetched(access: Access) -> Fetched:
    """Read a live cluster: nodes, pods, namespaces, ConfigMaps of ours, owners of gangs, Gangs.

    Raises:
        InputError: There is no answer, or nodes and pods may not be read; one line for people.
    """
    return asyncio.run(_fetched(access))


async def _fetched(access: Access) -> Fetched:
    person = await load_person(access)
    found = Fetched(person.server, person.namespace)
    async with ApiReader(person) as reader:
        nodes, pods, *others = await asyncio.gather(
            _needed(reader, "Node", f"{_CORE}/nodes"),
            _needed(reader, "Pod", f"{_CORE}/pods"),
            _wanted(reader, found, "Namespace", f"{_CORE}/namespaces", f"ClusterRole {ROLE}"),
            *(_config_maps(reader, found, home) for home in sorted(_HOMES)),
        )
        found.gangs = await _gangs(reader)
        waiting = list(_waiting(pods))
        sizes = [*await _owners(reader, waiting), *await _groups(reader, waiting)]
    found.objects = ordered([*nodes, *pods, *sizes, *(one for some in others for one in some)])
    return found


async def _needed(reader: ApiReader, kind: str, path: str) -> list[Plain]:
    try:
        return await reader.collection(path, partial(reduced, kind))
    except Forbidden as error:
        reader.fail(f"{error}. Ask for the ClusterRole {ROLE}.")


async def _config_maps(reader: ApiReader, found: Fetched, home: str) -> list[Plain]:
    path = f"{_CORE}/namespaces/{home}/configmaps"
    return await _wanted(reader, found, "ConfigMap", path, f"Role {ROLE} in {home}")


async def _wanted(
    reader: ApiReader, found: Fetched, kind: str, path: str, role: str
) -> list[Plain]:
    """Return a collection without which less is known; the person may lack the role for it."""
    try:
        return await reader.collection(path, partial(reduced, kind))
    except NotThere:
        return []
    except Forbidden as error:
        found.warnings.append(f"{error}: less is known. Ask for the {role}.")
        return []


async def _gangs(reader: ApiReader) -> list[Plain]:
    try:
        return await reader.collection(GANGS, lambda one: one)
    except (NotThere, Forbidden):
        return []


async def _owners(reader: ApiReader, pods: Iterable[Pod]) -> list[Plain]:
    """Return what owns the pods of gangs that wait, and what owns that; each once."""
    found: dict[str, Plain] = {}
    asked = set[str]()
    todo = [(pod.metadata.namespace, owner) for pod in pods for owner in _controllers(pod.metadata)]
    while todo:
        namespace, owner = todo.pop()
        path = path_of(owner, namespace)
        if owner.uid in asked or path is None:
            continue
        asked.add(owner.uid)
        try:
            whole = await reader.get(path)
        except (NotThere, Forbidden):
            continue
        kept = reduced(owner.kind, whole)
        metadata = msgspec.convert(whole, _Object).metadata
        if kept is not None and metadata.uid == owner.uid:
            found[owner.uid] = kept
            todo += [(namespace, one) for one in _controllers(metadata)]
    return list(found.values())


async def _groups(reader: ApiReader, pods: Iterable[Pod]) -> list[Plain]:
    """Return the PodGroups that pods name; each once."""
    found: list[Plain] = []
    for paths in dict.fromkeys(group_paths(pod, pod.metadata.namespace) for pod in pods):
        for path in paths:
            with suppress(NotThere, Forbidden):
                kept = reduced("PodGroup", await reader.get(path))
                found += [kept] if kept else []
                break
    return found


def _waiting(pods: Iterable[Plain]) -> Iterator[Pod]:
    """Yield the pods of gangs that have no node yet."""
    for plain in pods:
        pod = msgspec.convert(plain, Pod)
        if not pod.spec.node_name and gang_mark(pod)[0]:
            yield pod


def _controllers(metadata: Metadata) -> Iterator[Owner]:
    yield from (one for one in metadata.owner_references or () if one.controller)


def take_snapshot(access: Access, output: Format) -> int:
    """Write a live cluster as `simulate` and `check` read it; return the exit code.

    Raises:
        InputError: As `fetched`.
    """
    found = fetched(access)
    for warning in found.warnings:
        warn(warning)
    echo(written(found.objects, output), nl=False)
    return 0
