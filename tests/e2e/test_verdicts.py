"""The planner and kube-scheduler judge the same pods on the same nodes alike.

The planner keeps topology spread also where the pin would hide it from kube-scheduler. Pods are
pinned to each node as Linkwise pins them. `make soak` draws as many as make 5,000 pairs.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import chain
from random import Random

import pytest
from controlplane.api import Object
from controlplane.drawn_pods import World
from controlplane.drawn_volumes import DrawnVolumes
from controlplane.pods import Pods
from controlplane.soak import often
from controlplane.temporary import temporary_namespace
from controlplane.verdicts import refusal, refusals

from linkwise.planning.placement.filtering.reasons import Reason
from linkwise.planning.placement.pods.member import Member
from linkwise.planning.placement.result import Plan, Refusal
from linkwise.planning.placement.schedule import feasible_nodes, plan
from linkwise.planning.placement.state.snapshot import Snapshot, snapshot_of
from linkwise.views.files.cluster_file import Cluster
from linkwise.views.live.kubeconfig import Access
from linkwise.views.live.load import load_cluster

pytestmark = [
    pytest.mark.usefixtures("bare"),
    pytest.mark.timeout(often(900, 3600)),
    pytest.mark.versions,
]

WORLDS = 10
PODS = often(7, 115)
"""The number of pods that are drawn for each world."""
GANGS = often(3, 30)

Judge = Callable[[World], list[str]]


@pytest.fixture
def worlds(plane, nodes) -> Iterator[list[World]]:
    api = plane.api
    with ExitStack() as stack:
        spaces = [stack.enter_context(temporary_namespace(api, "world-")) for _ in range(WORLDS)]
        # The same draws in every run.
        found = [World(i, Random(i), Pods(api, space)) for i, space in enumerate(spaces)]  # noqa: S311
        nodes(*(line for world in found for line in world.lines))
        for world in found:
            stack.enter_context(world.filled(api))
        yield found


def waiting(worlds: list[World], bodies: dict[int, list[Object]]) -> None:
    """Create pods behind our gate, so that they are read with all that they name."""
    for world in worlds:
        for body in bodies[world.number]:
            world.pods.api.create(world.pods.path, body)


def seen(plane) -> tuple[Snapshot, dict[str, Member | None]]:
    """Return the cluster, and the waiting pods that may be planned now, by their names."""
    cluster: Cluster = load_cluster(Access(str(plane.kubeconfig))).cluster
    members = {f"{pod.namespace}/{pod.name}": pod.member for pod in cluster.pod_infos}
    for name, member in members.items():
        if member and member.volumes and member.volumes.waits:
            members[name] = None
    return snapshot_of(cluster.ledger), members


def refused_on(snapshot: Snapshot, member: Member | None, node: str) -> str:
    """Return why a node does not fit a pod."""
    found = plan(snapshot.only(node), [member]) if member else None
    return found.reason if isinstance(found, Refusal) else ""


def in_all(worlds: list[World], judge: Judge) -> list[str]:
    with ThreadPoolExecutor(WORLDS) as clients:
        return [wrong for found in clients.map(judge, worlds) for wrong in found]


def named(body: Object, *parts: object) -> Object:
    name = "-".join(map(str, (body["metadata"]["name"], *parts)))
    return {**body, "metadata": {**body["metadata"], "name": name}}


def test_a_pod_is_refused_on_the_nodes_where_kube_scheduler_refuses_it(plane, worlds):
    bodies = {one.number: [one.pod(f"pod-{i}") for i in range(PODS)] for one in worlds}
    waiting(worlds, bodies)
    snapshot, members = seen(plane)
    counts = Counter[tuple[bool, bool]]()

    def judge(world: World) -> list[str]:
        wrong: list[str] = []
        for body in bodies[world.number]:
            member = members[f"{world.pods.namespace}/{body['metadata']['name']}"]
            fits = feasible_nodes(snapshot, [member]) if member else ()
            is_fresh = DrawnVolumes.is_fresh(body)
            for place, node in enumerate(world.names[:1] if is_fresh else world.names):
                # kwok deletes a pod that ends by its name, so the next one needs another.
                why = refusal(world.pods, named(body, place), node)
                counts[node in fits, why is None] += 1
                if (node in fits) == (why is None):
                    continue
                # Once a pod is pinned, kube-scheduler may count the domain of its node alone.
                if why is not None or Reason.SPREAD not in refused_on(snapshot, member, node):
                    wrong.append(f"{node}: {why or 'taken'}: {body['spec']}")
        return wrong

    wrong = in_all(worlds, judge)
    assert not wrong, f"{len(wrong)} of {counts}: " + "\n".join(wrong)
    assert counts.total() >= often(300, 5000)
    assert min(counts[True, True], counts[False, False]) > counts.total() / 5


def test_kube_scheduler_binds_all_members_where_they_are_planned(plane, worlds):
    gangs = {one.number: [gang(one, f"gang-{i}") for i in range(GANGS)] for one in worlds}
    waiting(worlds, {number: list(chain(*found)) for number, found in gangs.items()})
    snapshot, members = seen(plane)
    planned = Counter[bool]()

    def judge(world: World) -> list[str]:
        wrong: list[str] = []
        for bodies in gangs[world.number]:
            # A claim for one pod alone keeps a gang at its gate: no plan is asked for.
            if DrawnVolumes.is_fresh(bodies[0]) or DrawnVolumes.is_for_one(bodies[0]):
                continue
            names = [f"{world.pods.namespace}/{body['metadata']['name']}" for body in bodies]
            present = [member for name in names if (member := members[name])]
            found = plan(snapshot, present) if len(present) == len(names) else None
            planned[isinstance(found, Plan)] += 1
            if isinstance(found, Plan):
                nodes = [placement.node for placement in found.placements]
                pinned = [named(body, "pinned") for body in bodies]
                reasons = refusals(world.pods, pinned, nodes)
                wrong += [f"{nodes}: {why}: {bodies[0]['spec']}" for why in reasons]
        return wrong

    wrong = in_all(worlds, judge)
    assert not wrong, "\n".join(wrong)
    assert planned[True] > GANGS * WORLDS / 5


def gang(world: World, name: str) -> list[Object]:
    """Draw two to four equal pods."""
    body = world.pod(name)
    return [named(body, index) for index in range(world.random.randrange(2, 5))]
