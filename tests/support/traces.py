"""Fleets, jobs and policies of replays."""

import numpy as np

from linkwise.cluster.allocations.gpus import Exact, GPUShare
from linkwise.cluster.nodes.node import Card, MachineSource, Node
from linkwise.cluster.nodes.node_reader import uniform_machine
from linkwise.planning.placement.options import Preferences
from linkwise.replay.fleet import PLENTY, empty_fleet
from linkwise.replay.job import Job, Shape, members_of
from linkwise.replay.policies.policy import Context
from linkwise.replay.policies.registry import POLICIES
from linkwise.topology.catalogue import entry


def shared_fleet(*sizes, cpu=PLENTY, model=""):
    """Return nodes a, b, ... with so many GPUs each, which give out shares."""
    return empty_fleet(
        [a_node(name, size, cpu, model) for name, size in zip("abcdefgh", sizes, strict=False)],
        shared=True,
    )


def a_node(name, gpus, cpu=PLENTY, model=""):
    labels = {"nvidia.com/gpu.product": model} if model else {}
    machine = uniform_machine(gpus)
    return Node(name, labels, machine=machine, cards=(Card(),) * gpus, cpu=cpu, memory=PLENTY)


def whole_fleet(count, machine="dgx1-v100", zones="", cpu=PLENTY):
    """Return nodes of a machine of the catalogue, which give out whole GPUs.

    Args:
        count: How many.
        machine: Its name.
        zones: The zone of each node, a letter each, which is a network domain.
        cpu: CPU of each node.
    """
    known = entry(machine).machine
    nodes = [
        Node(
            f"node-{i}",
            {"zone": zones[i]} if zones else {},
            machine=known,
            machine_source=MachineSource.FILE,
            cards=(Card(),) * known.n,
            cpu=cpu,
            memory=PLENTY,
        )
        for i in range(count)
    ]
    preferences = Preferences(domains=("zone",) if zones else ())
    return empty_fleet(nodes, shared=False, preferences=preferences)


def a_policy(name, seed=0, shapes=()):
    """Return a policy for a run; of some shapes each is as popular."""
    popularity = {shape: 1 / len(shapes) for shape in shapes}
    return POLICIES[name](Context(np.random.default_rng(seed), popularity))


def a_job(name="job", submit=0.0, duration=10.0, **shape):
    return Job(name, submit, duration, Shape(**({"gpus": 1} | shape)))


def occupied(fleet, *taken):
    """Return a fleet after other pods have some of its GPUs.

    Args:
        fleet: The fleet.
        taken: The node, the GPU, and the part of it [1/1000] of each pod; None: all of it.
    """
    for number, (node, gpu, milli) in enumerate(taken):
        (member,) = members_of(a_job(), 1000 + number, shared=milli is not None)
        holding = member.holding(Exact((GPUShare(gpu, mem=milli),)))
        fleet = fleet.hold_all([(node, holding)])
    return fleet


def placed(policy, fleet, *, shared=True, **shape):
    """Return the node and the GPUs of each pod of a job, or None."""
    job = a_job(**shape)
    placements = policy.place(fleet, job.shape, members_of(job, 0, shared=shared))
    return placements and [(each.node, list(each.gpus.indices)) for each in placements]
