"""Loads the cluster that a command looks at: a live one, or the one in a file."""

from dataclasses import replace

from linkwise.manifest.lines import Document
from linkwise.manifest.place import Place
from linkwise.manifest.value import Value
from linkwise.views.files.cluster_file import collect_objects
from linkwise.views.files.current_cluster import CurrentCluster, current_cluster, require_nodes
from linkwise.views.files.source import DEFAULT_NAMESPACE, shown_name, stream_objects
from linkwise.views.live.kubeconfig import Access


def load_cluster(access: Access, file: str | None = None) -> CurrentCluster:
    """Return the live cluster, or the one in a file.

    Raises:
        InputError: It cannot be read; one line for people.
    """
    if file is not None:
        objects = collect_objects(stream_objects(file), file)
        namespace = access.namespace or DEFAULT_NAMESPACE
        loaded = current_cluster(objects, namespace, shown_name(file))
        require_nodes(loaded.cluster, file)
        return loaded
    from linkwise.views.live.fetch import fetch_cluster  # noqa: PLC0415 - its library costs 0.3 s and 50 MB

    live = fetch_cluster(access)
    values = (value_of(plain, live.server) for plain in live.objects)
    objects = collect_objects(values, live.server)
    objects.volumes.is_known = live.knows_volumes
    loaded = current_cluster(objects, live.namespace, live.server)
    warnings = (*live.warnings, *loaded.warnings)
    return replace(loaded, gangs=tuple(live.gangs), warnings=warnings)


def value_of(plain: dict[str, object], server: str) -> Value:
    """Return an object that is in no file; error messages about it name the server."""
    return Value(server, plain, Document(plain, lambda: Place(1)))
