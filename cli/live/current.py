"""A cluster as it is now: a live one, or the one that a file describes."""

from dataclasses import dataclass, replace

from cli.files.cluster_file import Cluster, Gathered, checked, gathered
from cli.files.policies import decisions_of, snapshot_of
from cli.files.source import shown_name, stream_objects
from cli.live.kubeconfig import DEFAULT_NAMESPACE, Access
from manifest.lines import Document
from manifest.place import Place
from manifest.value import Value
from policy.snapshot import PolicySnapshot


@dataclass(frozen=True, slots=True)
class Current:
    """A cluster, what its administrators decided, and its other objects."""

    cluster: Cluster
    policy: PolicySnapshot
    objects: tuple[Value, ...]
    """Everything but nodes and pods."""
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
        found = gathered(stream_objects(file), file)
        return _current(found, access.namespace or DEFAULT_NAMESPACE, shown_name(file), file=file)
    from cli.live.fetch import fetched  # noqa: PLC0415 - its library costs 0.3 s and 50 MB

    live = fetched(access)
    found = gathered((_value(one, live.server) for one in live.objects), live.server)
    now = _current(found, live.namespace, live.server)
    return replace(now, gangs=tuple(live.gangs), warnings=(*live.warnings, *now.warnings))


def _current(found: Gathered, namespace: str, source: str, *, file: str | None = None) -> Current:
    policy = snapshot_of(decisions_of(found.others))
    cluster = found.cluster(policy)
    if file is not None:
        checked(cluster, file)
    return Current(
        cluster, policy, tuple(found.others), namespace, source, warnings=cluster.warnings
    )


def _value(plain: dict[str, object], server: str) -> Value:
    """Return an object that stands in no file: complaints about it name the server."""
    return Value(server, plain, Document(plain, lambda: Place(1)))
