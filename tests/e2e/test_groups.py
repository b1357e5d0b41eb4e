"""LeaderWorkerSet and JobSet, whose controllers are not here: their objects and what they make."""

import pytest
from controlplane.definitions import define
from controlplane.gangs import gang_labels, wait_for_phase, wait_until_placed, where
from controlplane.manifests import DEFINITIONS
from controlplane.pods import container

from linkwise.cluster import keys
from linkwise.workloads import operator_keys

pytestmark = [pytest.mark.usefixtures("placing"), pytest.mark.versions]

LWS = ("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets")
JOB_SET = ("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets")


@pytest.fixture(scope="module", autouse=True)
def kinds(plane):
    for group, version, kind, _ in (LWS, JOB_SET):
        define(plane.api, group, kind, version)
    yield
    for group, _, _, plural in (LWS, JOB_SET):
        plane.api.delete(f"{DEFINITIONS}/{plural}.{group}")


def made(pods, kind, spec, name):
    """Create an object; return how what it makes names it."""
    group, version, word, plural = kind
    path = f"/apis/{group}/{version}/namespaces/{pods.namespace}/{plural}"
    body = {"apiVersion": f"{group}/{version}", "kind": word, "metadata": {"name": name}}
    return owner(pods.api.create(path, {**body, "spec": spec}))


def owner(found):
    named = {key: found["metadata"][key] for key in ("name", "uid")}
    head = {"apiVersion": found["apiVersion"], "kind": found["kind"]}
    return {**head, **named, "controller": True, "blockOwnerDeletion": True}


def a_stateful_set(pods, name, above, replicas, labels, start=0):
    template = {
        "metadata": {"labels": labels, "annotations": {keys.LWS_SIZE: "4"}},
        "spec": {"containers": [container({keys.GPU_WHOLE: 4})]},
    }
    spec = {
        "replicas": replicas,
        "ordinals": {"start": start},
        "podManagementPolicy": "Parallel",
        "serviceName": name,
        "selector": {"matchLabels": labels},
        "template": template,
    }
    path = f"/apis/apps/v1/namespaces/{pods.namespace}/statefulsets"
    metadata = {"name": name, "ownerReferences": [above]}
    return pods.api.create(path, {"metadata": metadata, "spec": spec})


def test_a_group_of_a_leader_worker_set_is_one_gang_with_its_leader(pods, machines):
    machines(2)
    template = {"spec": {"containers": [container({keys.GPU_WHOLE: 4})]}}
    spec = {"replicas": 1, "leaderWorkerTemplate": {"size": 4, "workerTemplate": template}}
    lws = made(pods, LWS, spec, "serve")
    labels = {**gang_labels("serve", 4), keys.LWS_NAME: "serve", keys.LWS_GROUP_INDEX: "0"}
    a_stateful_set(pods, "serve", lws, 1, {**labels, operator_keys.LWS_WORKER_INDEX: "0"})
    wait_for_phase(pods, "serve-0", "Assembling", members="1/4")
    leader = {"apiVersion": "v1", "kind": "Pod", **pods.all()["serve-0"]}
    a_stateful_set(pods, "serve-0", owner(leader), 3, {**labels, "role": "worker"}, start=1)

    members = wait_until_placed(pods, "serve", 4)

    gang = wait_for_phase(pods, "serve-0", "Placed", members="4/4")
    assert [one["uid"] for one in gang["metadata"]["ownerReferences"]] == [lws["uid"]]
    ranks = [member["pod"] for member in gang["spec"]["plan"]["members"]]
    assert ranks == ["serve-0", "serve-0-1", "serve-0-2", "serve-0-3"]
    assert len(members) == 4


def a_job(pods, above, index, count):
    labels = {
        **gang_labels("train", 2 * count),
        operator_keys.JOBSET_REPLICATED_JOB: "workers",
        operator_keys.JOBSET_JOB_INDEX: str(index),
        operator_keys.JOBSET_GLOBAL_INDEX: str(index),
    }
    containers = [container({keys.GPU_WHOLE: 1})]
    spec = {
        "parallelism": count,
        "completions": count,
        "completionMode": "Indexed",
        "template": {
            "metadata": {"labels": labels},
            "spec": {"restartPolicy": "Never", "containers": containers},
        },
    }
    metadata = {"name": f"train-workers-{index}", "ownerReferences": [above]}
    path = f"/apis/batch/v1/namespaces/{pods.namespace}/jobs"
    pods.api.create(path, {"metadata": metadata, "spec": spec})


def a_job_set(count, **given):
    template = {"spec": {"containers": [container({keys.GPU_WHOLE: 1})]}}
    job = {"spec": {"parallelism": count, "completions": count, "template": template}}
    jobs = [{"name": name, "replicas": 1, "template": job} for name in ("first", "second")]
    return {"replicatedJobs": jobs, **given}


def test_each_job_of_a_job_set_has_a_node_of_its_own_where_one_takes_it(pods, machines):
    machines(2)
    above = made(pods, JOB_SET, a_job_set(8), "train")
    for index in (0, 1):
        a_job(pods, above, index, 8)

    members = wait_until_placed(pods, "train", 16)

    homes = [
        {held[0][0] for name, held in members.items() if name.startswith(f"train-workers-{index}-")}
        for index in (0, 1)
    ]
    assert sorted(map(len, homes)) == [1, 1]
    assert homes[0] != homes[1]


def test_a_job_set_in_order_says_why_its_gang_waits_for_ever(pods, machines):
    machines(1)
    order = {"startupPolicyOrder": "InOrder"}
    above = made(pods, JOB_SET, a_job_set(2, startupPolicy=order), "train")
    a_job(pods, above, 0, 2)

    wait_for_phase(pods, "train", "Assembling", "create it again with startupPolicyOrder: AnyOrder")
    assert where(pods, "train") == {}
