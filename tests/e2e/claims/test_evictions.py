"""Gangs on claims nodes that are evicted as a whole: for one of higher priority, or off a fault."""

from contextlib import contextmanager

import pytest
from controlplane.claims_nodes import RULES, recorded
from controlplane.gangs import events, make_stateful_gang, wait_for_event, wait_for_phase
from controlplane.pods import container
from controlplane.process import wait_for
from controlplane.temporary import priority_class

from linkwise.cluster import keys

PATIENCE = 120
HEADER = "apiVersion: linkwise.dev/v1alpha1\nkind: Policy\n"
PREEMPTION = f"{HEADER}gangs: {{preemption: {{minRunMinutes: 0}}}}\n"
ON_FAULT = f"{HEADER}gangs: {{{{onFault: {{}}, onFaultSeconds: 1}}}}\n"

pytestmark = pytest.mark.versions


def make_gang(pods, name, each, **spec):
    """Create a gang of two."""
    spec |= {"containers": [container({keys.NVIDIA_GPU: each})]}
    make_stateful_gang(pods, name, 2, {**spec, "terminationGracePeriodSeconds": 1})


def run_gang(pods, claims, name, each, **spec):
    """Run a gang of two; return the GPUs of each pod."""
    make_gang(pods, name, each, **spec)
    held = wait_until_allocated(pods, claims, name)
    wait_for_phase(pods, name, "Placed", members="2/2")
    return held


def wait_until_allocated(pods, claims, name, without=frozenset()):
    """Wait until a gang is bound, and its claims have the GPUs of its records; return these.

    Args:
        pods: The namespace.
        claims: The nodes.
        name: The gang.
        without: Uids of pods that must be gone.
    """

    def agreed():
        # Before all other reads: pods that are gone then appear in none of them.
        if without & uids(pods, name):
            return None
        planned, allocated, bound = recorded(pods), claims.allocated(pods.namespace), pods.bound()
        held = {pod: planned.get(pod) for pod in members(pods, name)}
        is_bound = len(held) == 2 and held.keys() <= bound
        agree = all(gpus and allocated.get(pod) == gpus for pod, gpus in held.items())
        return held if is_bound and agree else None

    return wait_for(agreed, f"{name} has the GPUs of its records", PATIENCE)


def members(pods, name):
    return {key: pod for key, pod in pods.all().items() if key.rpartition("-")[0] == name}


def uids(pods, name):
    return {pod["metadata"]["uid"] for pod in members(pods, name).values()}


def all_of(held):
    return frozenset().union(*held.values())


def test_a_gang_of_higher_priority_takes_the_gpus_of_a_whole_gang(
    pods, claims, machines, policy, history
):
    policy(PREEMPTION)
    machines(2)
    with priority_class(pods, "nightly", 100), priority_class(pods, "production", 1000):
        taken, before = {}, {}
        for name in ("first", "second"):
            held = run_gang(pods, claims, name, 4, priorityClassName="nightly")
            taken[name], before[name] = all_of(held), uids(pods, name)

        make_gang(pods, "urgent", 4, priorityClassName="production")
        urgent = wait_until_allocated(pods, claims, "urgent")

        (victim,) = [name for name in taken if uids(pods, name) != before[name]]
        assert all_of(urgent) == taken[victim]
        history.catch_up()
        assert history.evictions(pods.namespace) == {f"{victim}-0": 1, f"{victim}-1": 1}
        wait_for_event(pods, "Preempted", f"All 2 pods of {victim} are evicted", of="StatefulSet")
        wait_for_phase(pods, victim, "Waiting")


@contextmanager
def tainted(pods, claims, node, uuid):
    """Taint one GPU, as a component that watches its health does."""
    minor = next(gpu.minor for gpu in claims.gpus[node] if gpu.uuid == uuid)
    selector = {"driver": keys.DRA_GPU_DRIVER, "pool": node, "device": f"gpu-{minor}"}
    taint = {"key": "gpu.example.com/xid", "value": "79", "effect": "NoSchedule"}
    spec = {"deviceSelector": selector, "taint": taint}
    pods.api.create(RULES, {"metadata": {"name": "unhealthy"}, "spec": spec})
    try:
        yield
    finally:
        pods.api.delete(f"{RULES}/unhealthy")


def test_a_gang_moves_as_a_whole_off_a_gpu_with_a_taint(pods, claims, machines, policy, history):
    policy(ON_FAULT.format("evict"))
    (node,) = machines(1)
    held = run_gang(pods, claims, "train", 2)
    beside = run_gang(pods, claims, "beside", 1)
    before, others = uids(pods, "train"), uids(pods, "beside")
    faulty = min(held["train-0"])

    with tainted(pods, claims, node, faulty):
        after = wait_until_allocated(pods, claims, "train", without=before)
        wait_for_event(pods, "GangEvicted", "All 2 members of gang train", of="StatefulSet")

    assert faulty not in all_of(after)
    assert uids(pods, "beside") == others
    assert not all_of(after) & all_of(beside)
    history.catch_up()
    assert history.evictions(pods.namespace) == {"train-0": 1, "train-1": 1}


def test_a_taint_moves_nobody_where_the_policy_only_reports(pods, claims, machines, policy):
    policy(ON_FAULT.format("report"))
    (node,) = machines(1)
    held = run_gang(pods, claims, "train", 2)
    before = uids(pods, "train")

    with tainted(pods, claims, node, min(held["train-0"])):
        wait_for_event(pods, "GangGPUUnhealthy", node, of="StatefulSet")
        # Takes longer than a fault would have to last.
        run_gang(pods, claims, "beside", 1)
        assert uids(pods, "train") == before

    assert not events(pods, "GangEvicted", of="StatefulSet")
    assert {name: gpus for name, gpus in recorded(pods).items() if name in held} == held
