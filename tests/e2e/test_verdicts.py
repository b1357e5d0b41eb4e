"""The planner and kube-scheduler judge the same pods on the same nodes alike.

Pods are pinned to each node as Linkwise pins them. `make soak` draws twenty times as many.
"""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from random import Random

import msgspec
import pytest
from controlplane.api import Object
from controlplane.drawn_pods import World
from controlplane.pods import Pods
from controlplane.soak import often
from controlplane.temporary import temporary_namespace
from controlplane.verdicts import refusal, refusals

from linkwise.cluster.objects.pod import Pod
from linkwise.planning.placement.pods.member import Member, new_member
from linkwise.planning.placement.result import Plan
from linkwise.planning.placement.schedule import feasible_nodes, plan
from linkwise.planning.placement.state.snapshot import Snapshot, snapshot_of
from linkwise.views.live.kubeconfig import Access
from linkwise.views.live.load import load_cluster

pytestmark = pytest.mark.usefixtures("bare")

WORLDS = 10
PODS = often(6, 100)
"""The number of pods that are drawn for each world."""
GANGS = often(3, 30)


@pytest.fixture
def worlds(plane, nodes) -> Iterator[list[World]]:
    with ExitStack() as stack:
        spaces = [
            stack.enter_context(temporary_namespace(plane.api, "world-")) for _ in range(WORLDS)
        ]
        # The same draws in every run.
        found = [World(i, Random(i), Pods(plane.api, spaces[i])) for i in range(WORLDS)]  # noqa: S311
        nodes(*(line for world in found for line in world.lines))
        for world in found:
            world.equip(plane.api)
            world.fill()
        yield found


@pytest.fixture
def snapshot(plane, worlds) -> Snapshot:
    del worlds
    return snapshot_of(load_cluster(Access(str(plane.kubeconfig))).cluster.ledger)


def member_of(body: Object, world: World) -> Member:
    return new_member(msgspec.convert(body, Pod), world.pods.namespace)


def in_all(worlds, judge) -> list[str]:
    with ThreadPoolExecutor(WORLDS) as clients:
        return [wrong for found in clients.map(judge, worlds) for wrong in found]


def test_a_pod_is_refused_on_the_nodes_where_kube_scheduler_refuses_it(worlds, snapshot):
    counts = Counter[tuple[bool, bool]]()

    def judge(world: World) -> list[str]:
        wrong: list[str] = []
        for index in range(PODS):
            body = world.pod(f"pod-{index}")
            fits = feasible_nodes(snapshot, [member_of(body, world)])
            for place, node in enumerate(world.names):
                # kwok deletes a pod that ends by its name, so the next one needs another.
                why = refusal(world.pods, _named(body, place), node)
                counts[node in fits, why is None] += 1
                if (node in fits) != (why is None):
                    wrong.append(f"{node}: {why or 'bound'}: {body['spec']}")
        return wrong

    wrong = in_all(worlds, judge)
    assert not wrong, f"{len(wrong)} of {counts}: " + "\n".join(wrong)
    assert min(counts[True, True], counts[False, False]) > PODS * WORLDS / 3


def test_kube_scheduler_binds_all_members_where_they_are_planned(worlds, snapshot):
    planned = Counter[bool]()

    def judge(world: World) -> list[str]:
        wrong: list[str] = []
        for index in range(GANGS):
            body = world.pod(f"gang-{index}")
            bodies = [_named(body, i) for i in range(world.random.randrange(2, 5))]
            found = plan(snapshot, [member_of(one, world) for one in bodies])
            planned[isinstance(found, Plan)] += 1
            if isinstance(found, Plan):
                nodes = [placement.node for placement in found.placements]
                reasons = refusals(world.pods, bodies, nodes)
                wrong += [f"{nodes}: {why}: {body['spec']}" for why in reasons]
        return wrong

    wrong = in_all(worlds, judge)
    assert not wrong, "\n".join(wrong)
    assert planned[True] > GANGS * WORLDS / 5


def _named(body: Object, index: int) -> Object:
    metadata = body["metadata"]
    return {**body, "metadata": {**metadata, "name": f"{metadata['name']}-{index}"}}
