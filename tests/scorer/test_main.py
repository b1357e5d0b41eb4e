import asyncio
import json
import os
import re
import signal
import sys

import pytest
from controlplane.process import free_ports
from support.builders import a_pod
from support.servers.fake_cluster import FENCED
from support.waiting import PATIENCE, until, until_true

from linkwise.cluster import keys
from scorer.__main__ import LEASE, main

LEASES = "/apis/coordination.k8s.io/v1/namespaces/linkwise-system/leases"
NODE = {
    "metadata": {"name": "gpu-0", "labels": {keys.NODE_MODE: "topology"}},
    "status": {
        "allocatable": {keys.GPU_WHOLE: "8", "cpu": "96", "memory": "768Gi", "pods": "110"},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}


def lease(cluster):
    return cluster.get(f"{LEASES}/{LEASE}")["spec"]


def a_worker(cluster, name="bert-0", gpus=1):
    """Create a gang of one pod, as admission leaves it."""
    pod = a_pod(
        {keys.GPU_WHOLE: gpus},
        name=name,
        annotations={keys.GANG: name, keys.GANG_SIZE: "1"},
        schedulingGates=[{"name": keys.GANG}],
    )
    return cluster.put(f"/api/v1/namespaces/default/pods/{name}", pod)


def placed(cluster, name="bert-0"):
    pod = cluster.get(f"/api/v1/namespaces/default/pods/{name}")
    return pod and pod["metadata"]["annotations"].get(keys.ALLOCATION)


def test_an_invalid_setting_is_reported_in_one_line(monkeypatch, capsys):
    monkeypatch.setenv("LINKWISE_LOG_LEVEL", "loud")

    assert main() == 2
    assert capsys.readouterr().err.startswith("LINKWISE_LOG_LEVEL=loud: write debug, ")


async def test_the_process_leads_until_a_signal_and_releases_the_lease(cluster):
    probe_port, inspect_port, fit_port = free_ports(3)
    environment = {
        **os.environ,
        "HOSTNAME": "replica-0",
        "LINKWISE_HOST": "127.0.0.1",
        "LINKWISE_PROBE_PORT": str(probe_port),
        "LINKWISE_INSPECT_PORT": str(inspect_port),
        "LINKWISE_FIT_PORT": str(fit_port),
        "LINKWISE_WRITE_SECONDS": "0.1",
        "LINKWISE_API_SERVER": cluster.url,
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "scorer", env=environment, stdout=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(PATIENCE):
            while json.loads(await process.stdout.readline())["msg"] != "Leading":
                pass
        # A restarted container in the same pod is another holder.
        assert re.fullmatch(r"replica-0_[-0-9a-f]{36}", lease(cluster)["holderIdentity"])
    finally:
        process.send_signal(signal.SIGTERM)
        await process.communicate()
    assert process.returncode == 0
    assert lease(cluster)["holderIdentity"] == ""


async def test_a_pod_is_placed_under_the_term_of_the_lease(scorer, cluster):
    cluster.put("/api/v1/nodes/gpu-0", NODE)
    a_worker(cluster)
    await until(lambda: placed(cluster))

    pod = cluster.get("/api/v1/namespaces/default/pods/bert-0")
    assert pod["metadata"]["annotations"][keys.TERM] == str(lease(cluster)["leaseTransitions"])
    assert scorer.logged("Leading")[0]["term"] == lease(cluster)["leaseTransitions"]


async def test_a_fenced_leader_leads_again_only_under_another_term(scorer, cluster):
    def fence(method, path, _body):
        if method == "PATCH" and "/pods/" in path and len(scorer.logged("Leading")) == 1:
            return FENCED
        return None

    cluster.refuse = fence
    cluster.put("/api/v1/nodes/gpu-0", NODE)
    a_worker(cluster)
    await until(lambda: placed(cluster))

    first, second = (line["term"] for line in scorer.logged("Leading"))
    assert second > first
    assert [line["term"] for line in scorer.logged("Stopped leading")] == [first]


@pytest.mark.parametrize("fenced", [True, False], ids=["fenced", "not fenced"])
async def test_a_leader_checks_the_fence_once_per_term(scorer, cluster, fenced):
    tried = []

    def fence(method, _path, body):
        term = "/metadata/annotations/" + keys.TERM.replace("/", "~1")
        tried.append((method, next(step["value"] for step in body if step["path"] == term)))
        return FENCED if fenced else None

    cluster.refuse_dry_run = fence
    cluster.put("/api/v1/nodes/gpu-0", NODE)
    for name in ("bert-0", "bert-1"):
        a_worker(cluster, name)
    await until(lambda: placed(cluster) and placed(cluster, "bert-1"))

    term = lease(cluster)["leaseTransitions"]
    assert tried == [("PATCH", str(term - 1))]
    warned = [line["term"] for line in scorer.logged("Past leaders could still write")]
    assert warned == ([] if fenced else [term])


@pytest.mark.parametrize("started", [{"write_seconds": 60}], indirect=True)
async def test_a_leader_lists_objects_only_after_the_last_write_of_the_one_before(started, cluster):
    await until(lambda: cluster.get(f"{LEASES}/{LEASE}"))
    for _ in range(20):
        # Enough time for a list.
        status, why = await started.probe()

    listed = [line["resource"] for line in started.logged("Listed objects")]
    assert (status, [path for path in listed if "leases" not in path]) == (503, [])
    assert "pods were not listed yet" in why
    assert (await started.look("/v1/nodes"))[0] == 503


@pytest.fixture
def other(cluster):
    """Another replica that leads."""
    held = {"holderIdentity": "other", "leaseDurationSeconds": 600, "leaseTransitions": 4}
    cluster.put(f"{LEASES}/{LEASE}", {"metadata": {"name": LEASE}, "spec": held})


@pytest.mark.usefixtures("other")
async def test_a_replica_that_does_not_lead_is_ready_and_says_so(started):
    async def ready():
        return (await started.probe())[0] == 200

    await until_true(ready)
    assert "linkwise_leader 0.0" in (await started.probe("/metrics"))[1]
    status, why = await started.look("/v1/nodes")
    assert (status, "another replica leads" in why) == (503, True)


@pytest.mark.parametrize("started", [{"api_server": "http://127.0.0.1:1"}], indirect=True)
async def test_a_replica_that_cannot_read_the_lease_is_not_ready_and_says_why(started):
    async def says_why():
        return "lease: Lease linkwise-scorer was not read yet: GET " in (await started.probe())[1]

    await until_true(says_why)
    assert (await started.probe())[0] == 503
