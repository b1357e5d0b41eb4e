"""The workloads among the objects of a cluster, and what they declare about gangs. Pure."""

from collections.abc import Iterable, Iterator, Sequence

from linkwise.cluster.objects.metadata import Owner, controller_of
from linkwise.manifest.lines import without_nulls
from linkwise.manifest.typed import read_as
from linkwise.manifest.value import Value
from linkwise.planning.gang.owners import Owners
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.planning.state.workloads import above_set
from linkwise.workloads.kind import Kind, Workload
from linkwise.workloads.kinds.stateful_set import STATEFUL_SET
from linkwise.workloads.members import ExpectedPods, declared
from linkwise.workloads.registry import kind_of


def owners_of(objects: Sequence[Value], pods: Iterable[PodInfo]) -> Owners:
    """Return what workloads, and the leaders of groups of pods, declare about gangs."""
    controllers: dict[str, Owner | None] = {
        pod.uid: pod.controller for pod in pods if pod.is_group_leader
    }
    sizes: dict[str, int] = {}
    expected: dict[str, ExpectedPods] = {}
    totals: dict[str, int] = {}
    for kind, workload in workloads_in(objects):
        uid, controller = workload.metadata.uid, controller_of(workload.owners)
        controllers[uid] = above_set(controller) if kind is STATEFUL_SET else controller
        says = declared(kind, workload, uid)
        if says.total:
            totals[uid] = says.total
        if says.members:
            sizes[uid], expected[uid] = says.members, says.expected
    return Owners(controllers, sizes, expected, totals=totals)


def workloads_in(objects: Iterable[Value]) -> Iterator[tuple[Kind, Workload]]:
    """Yield the owners of pods among objects.

    Raises:
        InputError: One is wrong; with its line.
    """
    for value in objects:
        kind = kind_of(value.need("apiVersion").text(), value.need("kind").text())
        if kind is not None and kind.plural is not None:
            yield kind, read_as(kind.shape, without_nulls(value.mapping()), value)
