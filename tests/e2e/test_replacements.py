"""The GPUs of a lost member go to its replacement, although another pod waits for them."""

import random
import time

import pytest
from controlplane.gangs import delete_pods, gang_labels
from controlplane.history import History, gpus
from controlplane.pods import container, with_disk, write_disk
from controlplane.process import wait_for, wait_until
from controlplane.soak import often

from linkwise.cluster import keys
from linkwise.planning.gang.crd import gangs_of

PATIENCE = 120
EACH = 4

pytestmark = pytest.mark.usefixtures("placing")


def a_workload(kind, name, members, each=EACH):
    """Return a StatefulSet, or a Job whose pods never run, since they would succeed at once."""
    pod = {"containers": [container({keys.GPU_WHOLE: each})]}
    labels = {**gang_labels(name, members), "app": name}
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec = {
        "replicas": members,
        "podManagementPolicy": "Parallel",
        "serviceName": name,
        "selector": {"matchLabels": {"app": name}},
        "template": template,
    }
    if kind == "Job":
        pod |= {"restartPolicy": "Never", **with_disk("held", reads=True)}
        counts = {"parallelism": members, "completions": members, "completionMode": "Indexed"}
        spec = {**counts, "template": template}
    return {"metadata": {"name": name}, "spec": spec}


def path_of(pods, kind):
    api, plural = {"Job": ("batch", "jobs"), "StatefulSet": ("apps", "statefulsets")}[kind]
    return f"/apis/{api}/v1/namespaces/{pods.namespace}/{plural}"


def members(pods):
    """Return the GPUs of each member that has some, by name and uid."""
    return {
        (name, pod["metadata"]["uid"]): gpus(pod)
        for name, pod in pods.all().items()
        if name.startswith("train") and gpus(pod)
    }


def status(pods):
    (gang,) = pods.api.get(gangs_of(pods.namespace))["items"]
    return gang.get("status", {})


@pytest.fixture(params=["StatefulSet", "Job"])
def full(request, pods, machines):
    """A gang that fills the cluster, and a single pod that waits for its GPUs."""
    machines(1)
    # A Job's pods would succeed as soon as they run: kube-scheduler binds none of them.
    write_disk(pods, "held", "gpu-0")
    pods.api.create(path_of(pods, request.param), a_workload(request.param, "train", 2))
    wait_until(lambda: len(members(pods)) == 2, "the gang has its GPUs", PATIENCE)
    pods.create({keys.GPU_WHOLE: EACH}, name="waiter")
    return request.param, members(pods)


def test_a_replacement_gets_the_gpus_of_the_lost_member(pods, full):
    _, before = full
    lost = min(before)
    delete_pods(pods, lost[0])
    wait_until(
        lambda: lost not in members(pods) and len(members(pods)) == 2, "it is replaced", PATIENCE
    )
    assert sorted(members(pods).values()) == sorted(before.values())
    assert not gpus(pods.all()["waiter"])
    wait_until(lambda: "reserved" not in status(pods), "the gang is whole", PATIENCE)


@pytest.mark.parametrize("full", ["Job"], indirect=True)
def test_the_gang_shows_the_gpus_that_are_reserved(pods, full):
    """A Job makes the next pod after ten seconds."""
    kind, before = full
    lost = min(before)
    delete_pods(pods, lost[0])
    shown = wait_for(
        lambda: status(pods) if "reserved" in status(pods) else None, "it is shown", PATIENCE
    )
    assert shown["reserved"] == [{"node": "gpu-0", "gpus": sorted(i for _, i in before[lost])}]
    assert "GPUs of gpu-0 are reserved for its replacements until " in shown["reason"]
    assert not gpus(pods.all()["waiter"])

    pods.api.patch(f"{path_of(pods, kind)}/train", {"spec": {"suspend": True}})
    wait_until(lambda: bool(gpus(pods.all()["waiter"])), "the waiter has GPUs", PATIENCE)


def test_under_churn_no_member_waits_for_longer_than_two_seconds(pods, machines):
    machines(1)
    pods.api.create(path_of(pods, "StatefulSet"), a_workload("StatefulSet", "train", 8, each=1))
    wait_until(lambda: len(members(pods)) == 8, "the gang has its GPUs", PATIENCE)
    with History(pods.api) as history:
        for i in range(3):
            pods.create({keys.GPU_WHOLE: 1}, name=f"waiter-{i}")
        end = time.monotonic() + often(20, 600)
        while time.monotonic() < end:
            lost = random.choice(list(members(pods)))  # noqa: S311 - not for secrets.
            delete_pods(pods, lost[0])
            wait_until(
                lambda lost=lost: lost not in members(pods) and len(members(pods)) == 8,
                "it is replaced",
                PATIENCE,
            )
        history.catch_up()
    assert history.held_twice() == []
    assert not any(gpus(pods.all()[f"waiter-{i}"]) for i in range(3))
    # In the short form the machine may stand still: half of them show what is usual.
    waited = sorted(waits(history))
    assert waited[often(len(waited) // 2, -1)] <= 2


def waits(history):
    """Return the times from when a member was made until it had its GPUs [s]."""
    made, waited = {}, []
    for write in history.writes:
        if write.gang:
            since = made.setdefault(write.uid, write.at)
            if write.holds and since is not None:
                waited.append(write.at - since)
                made[write.uid] = None
    return waited
