import asyncio
import sys
from pathlib import Path

import pytest
from aiohttp import web
from structlog.testing import capture_logs
from support.servers.fake_api import FakeAPI, text
from support.servers.fake_cluster import FakeCluster

from linkwise.cluster import keys
from linkwise.runtime.kube.client import Kube
from scorer.withdraw.withdrawal import FENCE, OTHERS, REJECTING, Times, withdraw

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
OURS, OTHER = {"name": keys.GANG}, {"name": "example.com/other"}
QUICK = Times(seen=0.01, reviews=0.02, retry=0.01)


@pytest.fixture
async def cluster():
    async with FakeCluster() as cluster:
        for resource, name in (*REJECTING, *OTHERS):
            cluster.put(f"{ADMISSION}/{resource}/{name}", {"metadata": {}})
        yield cluster


def put(cluster, name, *gates, phase="Pending"):
    body = {"metadata": {}, "spec": {"schedulingGates": list(gates)}, "status": {"phase": phase}}
    cluster.put(f"/api/v1/namespaces/a/pods/{name}", body)


def gates(cluster):
    pods = cluster.all("/api/v1/pods")
    return {pod["metadata"]["name"]: pod["spec"]["schedulingGates"] for pod in pods}


async def run(cluster, times=QUICK):
    async with Kube(cluster.url) as kube, asyncio.timeout(30):
        await withdraw(kube, times)


def deleted(cluster):
    return [
        tuple(path.removeprefix(f"{ADMISSION}/").split("/"))
        for method, path, _ in cluster.writes
        if method == "DELETE" and path.startswith(ADMISSION)
    ]


async def test_objects_that_reject_pods_are_deleted_before_the_webhook_configurations(cluster):
    await run(cluster)

    assert deleted(cluster) == [*REJECTING, *OTHERS]


async def test_the_rules_of_the_scorer_are_deleted_once_it_may_write_none(cluster):
    rules = "/apis/resource.k8s.io/v1/devicetaintrules"
    cluster.put(FENCE, {"metadata": {}})
    cluster.put(f"{rules}/ours", {"metadata": {"labels": {keys.MANAGED_BY: keys.SCORER}}})
    cluster.put(f"{rules}/of-others", {"metadata": {}})
    await run(cluster)

    assert [rule["metadata"]["name"] for rule in cluster.all(rules)] == ["of-others"]
    paths = [path for method, path, _ in cluster.writes if method == "DELETE"]
    assert paths[0] == FENCE
    assert paths.index(rules) > paths.index(f"{ADMISSION}/{OTHERS[0][0]}/{OTHERS[0][1]}")


async def test_only_our_gate_is_removed_and_only_from_pods_that_have_it(cluster):
    put(cluster, "ours", OURS)
    put(cluster, "last", OTHER, OURS)
    put(cluster, "other", OTHER)
    put(cluster, "none")

    await run(cluster)

    assert gates(cluster) == {"ours": [], "last": [OTHER], "other": [OTHER], "none": []}
    assert len([method for method, *_ in cluster.writes if method == "PATCH"]) == 2


async def test_pods_that_a_late_review_gated_are_released(cluster):
    times = Times(seen=0, reviews=0.5, retry=0.01)
    put(cluster, "early", OURS)

    def gate_another(method, _path, _body):
        if method == "PATCH" and "late" not in gates(cluster):
            put(cluster, "late", OURS)

    cluster.refuse = gate_another
    await run(cluster, times)

    assert gates(cluster) == {"early": [], "late": []}


async def test_pods_that_users_go_on_to_gate_do_not_prevent_the_end(cluster):
    put(cluster, "pod-0", OURS)

    def gate_another(method, _path, _body):
        if method == "PATCH":
            put(cluster, f"pod-{len(gates(cluster))}", OURS)

    cluster.refuse = gate_another
    await run(cluster)

    assert gates(cluster)["pod-0"] == []


async def test_failed_requests_are_repeated_and_logged(cluster):
    put(cluster, "ours", OURS)
    failing = {"DELETE": 2, "PATCH": 2}

    def refuse(method, _path, _body):
        failing[method] -= 1
        return (403, "not yet", "") if failing[method] >= 0 else None

    cluster.refuse = refuse
    with capture_logs() as logs:
        await run(cluster)

    assert gates(cluster) == {"ours": []}
    warnings = [line["event"] for line in logs if line["log_level"] == "warning"]
    assert warnings == ["Could not delete object"] * 2 + ["Could not release pod"] * 2
    released = [line for line in logs if line["event"] == "Released pod"]
    assert [(line["namespace"], line["pod"]) for line in released] == [("a", "ours")]


async def test_objects_and_pods_that_are_gone_are_no_failure(cluster):
    for resource, name in (*REJECTING, *OTHERS):
        cluster.remove(f"{ADMISSION}/{resource}/{name}")
    put(cluster, "ours", OURS)

    def delete_first(method, path, _body):
        if method == "PATCH":
            cluster.remove(path)

    cluster.refuse = delete_first
    await run(cluster)

    assert gates(cluster) == {}


async def test_all_pages_of_pods_are_read_and_an_unreadable_one_is_read_again():
    async with FakeAPI() as api:
        for number in range(120):
            api.put(f"pod-{number}", spec={"schedulingGates": [OURS]})

        async def release(request):
            if request.method == "PATCH":
                api.remove(request.path.rpartition("/")[2])
            return web.json_response({})

        # The binding and the rules of both API versions are deleted, too.
        api.faults["call"].extend([release] * (len(REJECTING) + len(OTHERS) + 3 + 120))
        api.faults["list"].append(text(200, "no JSON"))
        async with Kube(api.url) as kube, asyncio.timeout(30):
            await withdraw(kube, QUICK)

        assert api.objects == {}
        assert {query["fieldSelector"] for query in api.queries} == {"status.phase=Pending"}


async def test_process_ends_with_an_error_if_it_is_terminated_before_all_is_done(cluster):
    environment = {
        "PYTHONPATH": str(Path(__file__).parents[3]),
        "LINKWISE_API_SERVER": cluster.url,
    }
    cluster.refuse = lambda *_: (403, "not yet", "")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "scorer.withdraw", env=environment, stdout=asyncio.subprocess.PIPE
    )
    await asyncio.wait_for(process.stdout.readline(), 60)

    process.terminate()

    assert await asyncio.wait_for(process.wait(), 60) == 1
