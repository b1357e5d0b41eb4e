"""Attacks of users with the role `edit` on the writes of the leader: they harm only themselves."""

import pytest
from controlplane import soak
from controlplane.api import refusal
from controlplane.gangs import events, wait_for_event
from controlplane.pods import Pods, a_pod
from controlplane.process import wait_until
from controlplane.scorer import LEASE
from controlplane.temporary import temporary_namespace

from linkwise.cluster import keys

RBAC = "/apis/rbac.authorization.k8s.io/v1"
NEARLY_FULL = {"any": "a" * 261_900}
"""Annotations that leave no room for a record."""


@pytest.fixture
def tenant(plane, placing, namespace):
    """The namespace's pods, as its users write them."""
    del placing
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
    binding = {"metadata": {"name": "tenant"}, "roleRef": role, "subjects": [subject]}
    plane.api.create(f"{RBAC}/namespaces/{namespace}/rolebindings", binding)
    api = plane.api_as(plane.token(namespace, "default"))
    pods = Pods(api, namespace)
    wait_until(lambda: refusal(lambda: api.get(pods.path)) == "", "it may do what users may")
    return pods


@pytest.fixture
def honest(plane, tenant):
    """Pods of another namespace."""
    del tenant
    with temporary_namespace(plane.api, "honest-") as name:
        yield Pods(plane.api, name)


def term(plane):
    return plane.api.get(LEASE)["spec"]["leaseTransitions"]


def is_placed(pods, name):
    annotations = pods.api.get(f"{pods.path}/{name}")["metadata"].get("annotations", {})
    return keys.ALLOCATION in annotations


def test_a_pod_that_cannot_be_patched_deposes_no_leader_whatever_its_name(
    plane, placing, tenant, honest, machines
):
    machines(1)
    before = term(plane)
    body = a_pod("linkwise-fence-0", {keys.GPU_WHOLE: 1}, annotations=NEARLY_FULL)
    tenant.api.create(tenant.path, body)
    wait_for_event(tenant, "WaitingForGPUs", "Too long: may not be more than 262144 bytes")

    for i in range(3):
        honest.create({keys.GPU_WHOLE: 1}, name=f"pod-{i}")
        wait_until(lambda i=i: is_placed(honest, f"pod-{i}"), "others are placed")

    assert term(plane) == before
    wait_until(lambda: placing.leads, "it answers")
    assert not is_placed(tenant, "linkwise-fence-0")


@soak.long
def test_a_pod_that_could_not_be_patched_is_placed_once_it_can_be(placing, tenant, machines):
    machines(1)
    tenant.api.create(tenant.path, a_pod("full", {keys.GPU_WHOLE: 1}, annotations=NEARLY_FULL))
    wait_until(lambda: bool(events(tenant, "WaitingForGPUs")), "an event says why it waits")

    tenant.api.patch(f"{tenant.path}/full", {"metadata": {"annotations": {"any": None}}})

    wait_until(lambda: is_placed(tenant, "full"), "it is placed", 120)
    wait_until(lambda: placing.leads, "it answers")


def test_a_gang_of_bare_pods_of_which_one_can_never_be_patched_gets_no_gpus_at_all(
    placing, tenant, honest, machines
):
    machines(1)
    labels = {keys.POD_GROUP_NAME: "bert", keys.POD_GROUP_MIN_AVAILABLE: "4"}
    for i in range(4):
        annotations = NEARLY_FULL if i == 3 else {}
        body = a_pod(f"bert-{i}", {keys.GPU_WHOLE: 2}, labels=labels, annotations=annotations)
        tenant.api.create(tenant.path, body)
    wait_until(lambda: bool(events(tenant, "GangWaiting")), "an event says why it waits")

    # It needs what the gang would have.
    honest.create({keys.GPU_WHOLE: 8}, name="pod")
    wait_until(lambda: is_placed(honest, "pod"), "another is placed")

    wait_for_event(tenant, "GangWaiting", "pod bert-3: ")
    assert not any(is_placed(tenant, f"bert-{i}") for i in range(4))
    assert placing.metrics["linkwise_partial_gangs"] == 0


def test_a_partial_gang_of_bare_pods_is_an_event_and_is_counted(placing, tenant, machines):
    machines(1)
    labels = {keys.POD_GROUP_NAME: "bert", keys.POD_GROUP_MIN_AVAILABLE: "2"}
    for i in range(2):
        body = a_pod(f"bert-{i}", {keys.GPU_WHOLE: 2}, labels=labels)
        tenant.api.create(tenant.path, body)
    wait_until(lambda: all(is_placed(tenant, f"bert-{i}") for i in range(2)), "it is placed")
    # A member fails, and the one in its place can never be patched.
    tenant.api.delete(f"{tenant.path}/bert-1", gracePeriodSeconds="0")
    body = a_pod("bert-2", {keys.GPU_WHOLE: 2}, labels=labels, annotations=NEARLY_FULL)
    tenant.api.create(tenant.path, body)

    wait_until(lambda: bool(events(tenant, "GangPartial")), "an event reports it")

    (message,) = events(tenant, "GangPartial")
    assert message.startswith("1 of 2 members of gang bert have their GPUs, the others do not: ")
    assert "pod bert-0 has no controller that would create it again" in message
    assert placing.metrics["linkwise_partial_gangs"] == 1
    wait_until(lambda: placing.leads, "it answers")
