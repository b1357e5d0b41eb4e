"""Status of a Gang when controllers replace, scale or suspend its pods."""

import pytest
from controlplane.gangs import (
    delete_pods,
    gang_labels,
    wait_for_event,
    wait_for_phase,
    wait_until_placed,
    wait_until_planned,
    where,
)
from controlplane.pods import container, with_disk, write_disk
from controlplane.process import wait_until

from linkwise.cluster import keys

pytestmark = pytest.mark.usefixtures("placing")

WORKER = {keys.GPU_WHOLE: 4}


def a_template(gang, size, **spec):
    labels = {**gang_labels(gang, size), "app": gang}
    return {"metadata": {"labels": labels}, "spec": {"containers": [container(WORKER)], **spec}}


def job_path(pods):
    return f"/apis/batch/v1/namespaces/{pods.namespace}/jobs"


def set_path(pods):
    return f"/apis/apps/v1/namespaces/{pods.namespace}/statefulsets"


def a_stateful_set(name, replicas):
    spec = {
        "replicas": replicas,
        "podManagementPolicy": "Parallel",
        "serviceName": name,
        "selector": {"matchLabels": {"app": name}},
        "template": a_template(name, replicas),
    }
    return {"metadata": {"name": name}, "spec": spec}


def a_job(name, **spec):
    template = a_template(name, 4, restartPolicy="Never", **spec)
    counts = {"parallelism": 4, "completions": 4, "completionMode": "Indexed"}
    return {"metadata": {"name": name}, "spec": {**counts, "template": template}}


def test_a_job_that_is_suspended_and_resumed(pods, machines):
    machines(2)
    # Its pods would succeed as soon as they run: the scheduler finds no node for them.
    write_disk(pods, "held", "gpu-0", "gpu-1")
    pods.api.create(job_path(pods), a_job("sweep", **with_disk("held", reads=True)))
    before = wait_for_phase(pods, "sweep", "Committing", members="0/4")
    assert before["status"]["gpus"] == 16

    pods.api.patch(f"{job_path(pods)}/sweep", {"spec": {"suspend": True}})
    gone = wait_for_phase(pods, "sweep", "Suspended", members="0/4")
    assert {"nodes", "gpus", "held", "bandwidth"} & gone["status"].keys() == set()

    pods.api.patch(f"{job_path(pods)}/sweep", {"spec": {"suspend": False}})
    again = wait_for_phase(pods, "sweep", "Committing", members="0/4")
    assert again["status"]["held"] == before["status"]["held"]


def test_a_job_that_has_succeeded(pods, machines):
    machines(2)
    pods.api.create(job_path(pods), a_job("short"))
    assert "nodes" not in wait_for_phase(pods, "short", "Finished", members="4/4")["status"]


def test_a_stateful_set_that_is_scaled_down(pods, machines):
    machines(3)
    pods.api.create(set_path(pods), a_stateful_set("ranks", 6))
    wait_until_placed(pods, "ranks", 6)
    assert wait_for_phase(pods, "ranks", "Placed", members="6/6")["status"]["gpus"] == 24

    pods.api.patch(f"{set_path(pods)}/ranks", {"spec": {"replicas": 4}})
    now = wait_for_phase(pods, "ranks", "Placed", members="4/4")
    assert now["status"]["gpus"] == 16
    wait_until(lambda: len(where(pods, "ranks")) == 4, "the others are gone", 120)
    assert now["status"]["nodes"] == ",".join(nodes_of(pods, "ranks"))
    wait_until_planned(pods, 4, of="ranks")
    now = wait_for_phase(pods, "ranks", "Placed", members="4/4")
    assert now["spec"]["plan"]["bandwidth"] == now["status"]["bandwidth"]

    pods.api.patch(f"{set_path(pods)}/ranks", {"spec": {"replicas": 0}})
    assert "held" not in wait_for_phase(pods, "ranks", "Suspended")["status"]


def test_a_replaced_member_leaves_the_rest_of_the_status_unchanged(pods, machines):
    machines(2)
    pods.api.create(set_path(pods), a_stateful_set("pair", 4))
    before = wait_for_phase(pods, "pair", "Placed", members="4/4")["status"]
    first = pods.all()["pair-1"]["metadata"]["uid"]
    delete_pods(pods, "pair-1")

    def replaced():
        pod = pods.all().get("pair-1", {"metadata": {"uid": first}})
        return pod["metadata"]["uid"] != first and "pair-1" in where(pods, "pair")

    wait_until(replaced, "it is there again", 120)
    now = wait_for_phase(pods, "pair", "Placed", members="4/4")["status"]
    told_of = ("nodes", "gpus", "held", "bandwidth")
    assert [now[key] for key in told_of] == [before[key] for key in told_of]
    assert now["bandwidth"] > 0


def nodes_of(pods, gang):
    return sorted({node for held in where(pods, gang).values() for node, _ in held})


def test_an_unhealthy_gpu_of_a_member_is_shown_until_it_is_healthy(pods, machines):
    machines(1)
    pods.api.create(set_path(pods), a_stateful_set("pair", 2))
    wait_for_phase(pods, "pair", "Placed", members="2/2")
    [(node, gpu), *_] = where(pods, "pair")["pair-1"]

    metadata = {"name": f"{keys.UNHEALTHY_NAME_PREFIX}{node}"}
    config_maps = f"/api/v1/namespaces/{keys.TOPOLOGY_NAMESPACE}/configmaps"
    body = {"metadata": metadata, "data": {keys.UNHEALTHY_KEY: str(gpu)}}
    pods.api.create(config_maps, body)
    try:
        wait_until(lambda: health(pods, "pair") == "False", "the Gang says so", 120)
        text = f"{gpu} of {node} (pod pair-1)"
        wait_for_event(pods, "GangGPUUnhealthy", text, of="StatefulSet")
    finally:
        pods.api.delete(f"{config_maps}/{metadata['name']}")
    wait_until(lambda: health(pods, "pair") == "True", "the Gang says so", 120)


def health(pods, gang):
    """Return the status of a placed gang's condition about its GPUs; None: it has none."""
    conditions = wait_for_phase(pods, gang, "Placed")["status"]["conditions"]
    return next((each["status"] for each in conditions if each["type"] == "GPUsHealthy"), None)
