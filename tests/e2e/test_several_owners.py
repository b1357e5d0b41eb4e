"""Gangs whose pods several owners make, and gangs that have lost members for good."""

import pytest
from controlplane.definitions import define
from controlplane.gangs import delete_pods, gang_labels, held, wait_for_phase
from controlplane.manifests import DEFINITIONS
from controlplane.pods import a_pod, container
from controlplane.process import wait_until

from linkwise.cluster import keys
from linkwise.planning.gang.crd import gangs_of

pytestmark = pytest.mark.usefixtures("placing")

POD_GROUP = ("scheduling.x-k8s.io", "v1alpha1", "PodGroup")
JOB_SET = ("jobset.x-k8s.io", "v1alpha2", "JobSet")
PATIENCE = 60
EACH = {keys.GPU_WHOLE: 2}


@pytest.fixture(scope="module", autouse=True)
def kinds(plane):
    for group, version, kind in (POD_GROUP, JOB_SET):
        define(plane.api, group, kind, version)
    yield
    for group, _, kind in (POD_GROUP, JOB_SET):
        plane.api.delete(f"{DEFINITIONS}/{kind.lower()}s.{group}")


def made(pods, kind, name, **spec):
    group, version, word = kind
    path = f"/apis/{group}/{version}/namespaces/{pods.namespace}/{word.lower()}s"
    body = {"apiVersion": f"{group}/{version}", "kind": word, "metadata": {"name": name}}
    return pods.api.create(path, {**body, "spec": spec})


def a_stateful_set(pods, name, replicas, group, *, limits=None):
    labels = {"app": name, keys.POD_GROUP: group}
    limits = {keys.GPU_WHOLE: 1} if limits is None else limits
    spec = {
        "replicas": replicas,
        "podManagementPolicy": "Parallel",
        "serviceName": name,
        "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [container(limits)]}},
    }
    path = f"/apis/apps/v1/namespaces/{pods.namespace}/statefulsets"
    pods.api.create(path, {"metadata": {"name": name}, "spec": spec})


def states(pods):
    """Return the phase and the members of each Gang, by name of the gang."""
    return sorted(
        (gang["spec"]["gang"], gang.get("status", {}).get("phase"), gang["status"].get("members"))
        for gang in pods.api.get(gangs_of(pods.namespace))["items"]
        if gang.get("status")
    )


def test_two_gangs_of_two_owners_each_do_not_hold_each_other_up(pods, machines):
    machines(1)
    for gang in "ab":
        made(pods, POD_GROUP, gang, minMember=8)
    for role in ("ps", "worker"):
        for gang in "ab":
            a_stateful_set(pods, f"{gang}-{role}", 4, gang)

    def one_runs():
        return [phase for _, phase, _ in states(pods)] in (
            ["Placed", "Waiting"],
            ["Waiting", "Placed"],
        )

    wait_until(one_runs, "one gang of eight runs, the other one waits", PATIENCE)
    found = states(pods)
    assert [members for *_, members in found] == ["8/8", "8/8"]
    runs = next(gang for gang, phase, _ in found if phase == "Placed")
    assert len(held(pods, f"{runs}-")) == 8
    assert not held(pods, "b-" if runs == "a" else "a-")
    (gang,) = (
        each
        for each in pods.api.get(gangs_of(pods.namespace))["items"]
        if each["spec"]["gang"] == runs
    )
    named = {each["name"] for each in gang["metadata"]["ownerReferences"]}
    assert named == {f"{runs}-ps", f"{runs}-worker"}


def test_a_pod_group_counts_pods_without_gpus_of_another_owner(pods, machines):
    machines(1)
    made(pods, POD_GROUP, "train", minMember=3)
    a_stateful_set(pods, "worker", 2, "train")
    wait_until(lambda: ("train", "Assembling", "2/3") in states(pods), "it waits", PATIENCE)
    a_stateful_set(pods, "ps", 1, "train", limits={})

    wait_until(lambda: states(pods) == [("train", "Placed", "2/2")], "it runs", PATIENCE)


def test_a_member_that_succeeded_and_is_gone_is_not_missed(pods, machines):
    machines(1)
    above = made(pods, JOB_SET, "train")
    owner = {
        "apiVersion": above["apiVersion"],
        "kind": "JobSet",
        "name": "train",
        "uid": above["metadata"]["uid"],
        "controller": True,
    }

    def a_worker(name):
        body = a_pod(name, labels=gang_labels("train", 4), containers=[container(EACH)])
        body["metadata"]["ownerReferences"] = [owner]
        pods.api.create(pods.path, body)

    for index in range(4):
        a_worker(f"train-{index}")
    wait_for_phase(pods, "train", "Placed", members="4/4")
    pods.create(EACH, name="waiter")
    pods.api.patch(f"{pods.path}/train-0/status", {"status": {"phase": "Succeeded"}})
    wait_until(lambda: bool(held(pods, "waiter")), "its GPUs are free", PATIENCE)
    delete_pods(pods, "train-0")
    wait_for_phase(pods, "train", "Placed", members="3/3")

    delete_pods(pods, "train-1")
    a_worker("train-1")

    wait_until(lambda: len(held(pods, "train-")) == 3, "the replacement has GPUs", PATIENCE)
    gang = wait_for_phase(pods, "train", "Placed", members="3/3")
    assert "reserved" not in gang["status"] or not gang["status"]["reserved"]
