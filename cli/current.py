"""A cluster as it is now: a live one, or the one that a file describes."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from cli.cluster import Cluster, read_cluster, read_cluster_file
from cli.decisions import decisions_of, snapshot_of
from cli.kubeconfig import DEFAULT_NAMESPACE, Access
from cli.source import read_objects, shown_name
from policy.lines import Document
from policy.place import Place
from policy.snapshot import PolicySnapshot
from webhook.manifest.value import Value


@dataclass(frozen=True, slots=True)
class Current:
    """A cluster, what its administrators decided, and its other objects."""

    cluster: Cluster
    policy: PolicySnapshot
    objects: tuple[Value, ...]
    namespace: str
    """Where things are that do not say it."""
    source: str
    """The file, or the API server's address."""
    gangs: tuple[dict[str, object], ...] = ()
    """The Gang objects of a live cluster."""
    warnings: tuple[str, ...] = ()
    """What could not be read, or was guessed."""


def current(access: Access, file: str | None = None) -> Current:
    """Return the live cluster, or the one of a file.

    Raises:
        InputError: It cannot be read; one line for people.
    """
    if file is not None:
        namespace = access.namespace or DEFAULT_NAMESPACE
        return _current(read_objects(file), file, namespace, read=read_cluster_file)
    from cli.fetch import fetched  # noqa: PLC0415 - its library costs 0.3 s and 50 MB

    found = fetched(access)
    objects = [_value(one, found.server) for one in found.objects]
    return _current(
        objects, found.server, found.namespace, gangs=found.gangs, warnings=found.warnings
    )


def _current(
    objects: Sequence[Value],
    file: str,
    namespace: str,
    *,
    gangs: Iterable[dict[str, object]] = (),
    warnings: Iterable[str] = (),
    read: Callable[[Iterable[Value], str, PolicySnapshot], Cluster] = read_cluster,
) -> Current:
    policy = snapshot_of(decisions_of(objects))
    cluster = read(objects, file, policy)
    return Current(
        cluster,
        policy,
        tuple(objects),
        namespace,
        shown_name(file),
        tuple(gangs),
        (*warnings, *cluster.warnings),
    )


def _value(plain: dict[str, object], server: str) -> Value:
    """Return an object that stands in no file: complaints about it name the server."""
    return Value(server, plain, Document(plain, lambda: Place(1)))
