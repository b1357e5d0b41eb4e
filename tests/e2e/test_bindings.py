"""Pods that kube-scheduler does not bind where they were planned: its answer is acted on at once.

They claim NICs of a driver that Linkwise does not know, so that kube-scheduler alone decides about
them. The deadline of a plan is so long that nothing here is done because of it.
"""

import pytest
from controlplane.gangs import (
    events,
    make_stateful_gang,
    wait_for_event,
    wait_for_phase,
    wait_until_placed,
    where,
)
from controlplane.history import gpus
from controlplane.pods import a_pod, container
from controlplane.process import wait_until
from controlplane.temporary import priority_class

from linkwise.cluster import keys

RESOURCES = "/apis/resource.k8s.io/v1"
DRIVER = "nic.example.com"
PATIENCE = 120


@pytest.fixture(autouse=True)
def patient(placing, policy):
    """A gang is not given up at its deadline while a test runs."""
    del placing
    gangs = "{commitDeadlineSeconds: 3600, preemption: {minRunMinutes: 0}}"
    policy(f"apiVersion: linkwise.dev/v1alpha1\nkind: Policy\ngangs: {gangs}")


@pytest.fixture
def nics(plane):
    """Offer NICs on nodes, and their class; the test's end takes all away."""
    made = []

    def make(kind, name, spec):
        plane.api.create(f"{RESOURCES}/{kind}", {"metadata": {"name": name}, "spec": spec})
        made.append(f"{RESOURCES}/{kind}/{name}")

    def offer(*nodes):
        if not made:
            cel = {"expression": f"device.driver == '{DRIVER}'"}
            make("deviceclasses", DRIVER, {"selectors": [{"cel": cel}]})
        for node in nodes:
            pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
            devices = [{"name": f"nic-{i}"} for i in range(8)]
            spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices}
            make("resourceslices", f"{node}-nic", spec)

    yield offer
    for path in made:
        plane.api.delete(path)


@pytest.fixture
def gangs(pods):
    """Create gangs with a NIC for each pod; delete them at the end."""
    made = []
    exactly = {"deviceClassName": DRIVER}
    template = {"spec": {"devices": {"requests": [{"name": "nic", "exactly": exactly}]}}}
    path = f"{RESOURCES}/namespaces/{pods.namespace}/resourceclaimtemplates"
    pods.api.create(path, {"metadata": {"name": "nic"}, "spec": template})

    def make(name, size, each, *, has_nics=True, **more):
        main = container({keys.GPU_WHOLE: each})
        spec = {"containers": [main], "terminationGracePeriodSeconds": 0, **more}
        if has_nics:
            main["resources"]["claims"] = [{"name": "nic"}]
            spec["resourceClaims"] = [{"name": "nic", "resourceClaimTemplateName": "nic"}]
        made.append(make_stateful_gang(pods, name, size, spec))

    yield make
    for path in made:
        pods.api.delete(path)
    pods.clear()


def planned(pods):
    """Return the planned node of each pod that has one."""
    return {name: gpus(pod)[0][0] for name, pod in pods.all().items() if gpus(pod)}


def uids(pods):
    return {pod["metadata"]["uid"] for pod in pods.all().values()}


def test_a_gang_whose_node_lacks_something_goes_to_others_as_a_whole(
    plane, machines, nics, pods, gangs
):
    hosts = {node.name for node in machines(3)}
    nics()
    with plane.paused("kube-scheduler"):
        gangs("moved", 2, 8)
        wait_until(lambda: len(planned(pods)) == 2, "it has GPUs", PATIENCE)
        first, before = planned(pods)["moved-0"], uids(pods)
        nics(*hosts - {first})

    wait_until_placed(pods, "moved", 2)
    assert {held[0][0] for held in where(pods, "moved").values()} == hosts - {first}
    assert not uids(pods) & before
    why = f"pod moved-0 was not bound to {first}: kube-scheduler says: cannot allocate all claims"
    wait_for_event(
        pods,
        "GangEvicted",
        f"All 2 members of gang moved were evicted, to be placed again together: {why}",
    )
    assert len(events(pods, "GangEvicted")) == 1


def test_nobody_is_evicted_for_what_no_other_node_would_change(machines, nics, pods, gangs):
    machines(3)
    gangs("waiting", 2, 8)
    gang = wait_for_phase(
        pods, "waiting", "Committing", f"device class {DRIVER} does not exist; no other node"
    )
    assert gang["status"]["members"] == "0/2"
    wait_for_event(pods, "GangWaiting", f"device class {DRIVER} does not exist")
    before = uids(pods)
    nics("gpu-0", "gpu-1", "gpu-2")

    wait_until_placed(pods, "waiting", 2)
    wait_for_phase(pods, "waiting", "Placed")
    assert uids(pods) == before
    assert events(pods, "GangEvicted") == []


def test_a_preemption_that_did_not_help_is_not_repeated(machines, nics, pods, gangs):
    machines(1)
    nics()
    # It asks for nothing. Once it ends, the node is not excluded any longer.
    pods.api.create(pods.path, a_pod("neighbour", nodeName="gpu-0"))
    with priority_class(pods, "urgent", 1000):
        gangs("low", 2, 4, has_nics=False)
        wait_until_placed(pods, "low", 2)
        before = uids(pods)
        gangs("high", 1, 8, priorityClassName="urgent")
        wait_for_event(pods, "GangEvicted", "was not bound to gpu-0: kube-scheduler says: cannot")
        wait_until_placed(pods, "low", 2)
        wait_for_phase(pods, "low", "Placed")
        again = uids(pods)
        assert not {pod["metadata"]["uid"] for pod in of(pods, "low")} & before
        pods.api.delete(f"{pods.path}/neighbour", gracePeriodSeconds="0")

        wait_for_phase(pods, "high", "Waiting", "nobody is evicted for it on gpu-0")
        assert {pod["metadata"]["uid"] for pod in of(pods, "low")} <= again
        assert len(events(pods, "Preempted")) == 1


def of(pods, gang):
    return [pod for name, pod in pods.all().items() if name.startswith(f"{gang}-")]
