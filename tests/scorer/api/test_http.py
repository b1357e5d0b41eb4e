import asyncio
import json
import threading
from dataclasses import replace

import msgspec
import pytest
from msgspec import UNSET
from support.builders import a_held_pod, a_pod, placed_pod
from support.waiting import until, until_true

from linkwise.cluster import keys
from linkwise.cluster.allocations.gpus import GPUShare
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.scorer_lease import LEASE
from linkwise.cluster.whatif_api import MAX_PODS, FitRequest, FitResponse, FitTemplate
from scorer import __main__ as process
from scorer.api import http
from scorer.timings import Timings


@pytest.mark.parametrize(
    ("path", "fields"),
    [("/v1/nodes", {"term", "nodes"}), ("/v1/gangs", {"term", "gangs", "waiting"})],
)
async def test_a_leader_responds_in_json_with_its_term(scorer, path, fields):
    status, body = await scorer.look(path)

    assert (status, json.loads(body).keys()) == (200, fields)
    assert json.loads(body)["term"] == scorer.logged("Leading")[0]["term"]


async def test_a_query_selects_one_node(scorer, cluster):
    labels = {keys.NODE_MODE: "topology"}
    for name in ("gpu-0", "gpu-1"):
        body = {
            "metadata": {"name": name, "labels": labels},
            "status": {"allocatable": {keys.GPU_WHOLE: "8"}},
        }
        cluster.put(f"/api/v1/nodes/{name}", body)

    async def names(query):
        _, body = await scorer.look(f"/v1/nodes{query}")
        return [node["name"] for node in json.loads(body)["nodes"]]

    async def both():
        return await names("") == ["gpu-0", "gpu-1"]

    await until_true(both)
    assert await names("?name=gpu-1") == ["gpu-1"]


@pytest.mark.parametrize("path", ["/v1/nodes?namespace=a", "/v1/gangs?name=a", "/v1/gangs?x"])
async def test_an_unknown_query_is_refused(scorer, path):
    status, why = await scorer.look(path)
    assert (status, why[:20]) == (400, "the only query param")


async def test_other_paths_are_not_found(scorer):
    assert (await scorer.look("/v1/pods"))[0] == 404
    assert (await scorer.look("/metrics"))[0] == 404


# ---- Dry runs.

NODE = {
    "metadata": {"name": "gpu-0", "labels": {keys.NODE_MODE: "topology"}},
    "status": {
        "allocatable": {keys.GPU_WHOLE: "8", "cpu": "96", "memory": "768Gi", "pods": "110"},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}
GATED = a_pod({keys.GPU_WHOLE: 6}, schedulingGates=[{"name": keys.GANG}])
WEBHOOK = "webhook"
QUESTION = FitRequest([FitTemplate(msgspec.convert(GATED, Pod), ["train"])])


@pytest.fixture
def tokens(cluster):
    """A token of the webhook, one of another account, and one for another audience."""
    for token, user, audience in (
        (WEBHOOK, keys.WEBHOOK_USER, keys.FIT_AUDIENCE),
        ("other", "system:serviceaccount:team:ann", keys.FIT_AUDIENCE),
        ("wider", keys.WEBHOOK_USER, "https://kubernetes.default.svc"),
    ):
        status = {"authenticated": True, "user": {"username": user}, "audiences": [audience]}
        cluster.users[token] = status


async def nodes_known(scorer, cluster):
    cluster.put("/api/v1/nodes/gpu-0", NODE)

    async def known():
        return "gpu-0" in (await scorer.look("/v1/nodes"))[1]

    await until_true(known)


@pytest.mark.usefixtures("tokens")
async def test_a_dry_run_shows_where_pods_would_fit_and_assumes_nothing(scorer, cluster):
    await nodes_known(scorer, cluster)
    for _ in range(2):
        status, body = await scorer.fits(QUESTION, WEBHOOK)
        (fit,) = msgspec.json.decode(body, type=FitResponse).fits
        assert (status, fit.fits, fit.pods[0].node) == (200, True, "gpu-0")
        assert (fit.nodes[0].free_before, fit.nodes[0].free_after) == (8, 2)
    assert [path for _, path, _ in cluster.writes if "/pods" in path] == []


@pytest.mark.usefixtures("tokens")
@pytest.mark.parametrize("timings", [Timings(retry_limit=0)])
async def test_a_dry_run_ends_at_its_limit(scorer, cluster):
    await nodes_known(scorer, cluster)

    status, why = await scorer.fits(QUESTION, WEBHOOK)

    assert (status, b"takes more than 0 s; ask about fewer pods" in why) == (503, True)


@pytest.fixture
def impatient(monkeypatch):
    """Scorers that give up a response long before its thread has ended."""
    monkeypatch.setattr(process, "WHATIF_LIMITS", replace(http.WHATIF_LIMITS, answer_seconds=1))


@pytest.fixture
def slow(monkeypatch):
    """Dry runs whose threads wait at the first deadline check; yields two events: it has started,
    and it may continue."""
    started, go_on = threading.Event(), threading.Event()

    def clock():
        if threading.current_thread() is not threading.main_thread():
            started.set()
            go_on.wait()
        return 0

    monkeypatch.setattr(process, "monotonic", clock)
    return started, go_on


@pytest.mark.usefixtures("tokens", "impatient")
async def test_a_second_dry_run_is_refused_immediately(slow, scorer, cluster):
    started, go_on = slow
    await nodes_known(scorer, cluster)

    try:
        first = asyncio.create_task(scorer.fits(QUESTION, WEBHOOK))
        await asyncio.to_thread(started.wait)
        concurrent = await scorer.fits(QUESTION, WEBHOOK)
        given_up = await first
        afterwards = await scorer.fits(QUESTION, WEBHOOK)
    finally:
        go_on.set()

    busy = (503, b"another dry run is in progress\n")
    assert (given_up[0], concurrent, afterwards) == (504, busy, busy)

    async def answered():
        return (await scorer.fits(QUESTION, WEBHOOK))[0] == 200

    await until_true(answered)


@pytest.mark.usefixtures("tokens")
async def test_the_reason_of_a_reservation_does_not_name_the_starving_unit(scorer, cluster):
    cluster.put("/api/v1/nodes/gpu-0", NODE)
    policy = f"/api/v1/namespaces/{keys.POLICY_NAMESPACE}/configmaps/{keys.POLICY_NAME}"
    text = "apiVersion: linkwise.dev/v1alpha1\nkind: Policy\ngangs: {ageingMinutes: 0}\n"
    cluster.put(policy, {"metadata": {}, "data": {keys.POLICY_KEY: text}})
    held = placed_pod("first", {keys.GPU_WHOLE: 6}, "gpu-0", *map(GPUShare, range(6)))
    cluster.put("/api/v1/namespaces/team/pods/first", held)
    waits = a_held_pod(8, "secret")
    cluster.put("/api/v1/namespaces/team/pods/secret", waits)
    gate = {"schedulingGates": [{"name": keys.GANG}]}
    pod = msgspec.convert(a_pod({keys.GPU_WHOLE: 1}, **gate), Pod)

    async def reserved():
        _, body = await scorer.fits(FitRequest([FitTemplate(pod, ["train"])]), WEBHOOK)
        assert b"secret" not in body
        (fit,) = msgspec.json.decode(body, type=FitResponse).fits
        return not fit.fits and "reserved for the unit that waited longest (1)" in fit.reason

    await until_true(reserved)


def running(cluster, name, namespace, *gpus):
    """Create a pod that has had these GPUs for long."""
    held = placed_pod(name, {keys.GPU_WHOLE: len(gpus)}, "gpu-0", *map(GPUShare, gpus))
    owner = {"kind": "ReplicaSet", "name": name, "uid": f"{name}-rs", "controller": True}
    held["metadata"] |= {"namespace": namespace, "uid": name, "ownerReferences": [owner]}
    started = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}
    cluster.put(f"/api/v1/namespaces/{namespace}/pods/{name}", held | {"status": started})


def preempting(gpus):
    """Return a question about a pod of a high priority in namespace `team`."""
    raw = a_pod({keys.GPU_WHOLE: gpus}, priority=9, schedulingGates=[{"name": keys.GANG}])
    raw["metadata"]["namespace"] = "team"
    return FitRequest([FitTemplate(msgspec.convert(raw, Pod), ["train"])])


@pytest.mark.usefixtures("tokens")
async def test_a_dry_run_obeys_disruption_budgets(scorer, cluster):
    cluster.put("/api/v1/nodes/gpu-0", NODE)
    for name, gpus in (("secret", range(4)), ("own", range(4, 8))):
        running(cluster, name, "other", *gpus)
    budgets = "/apis/policy/v1/namespaces/other/poddisruptionbudgets"

    def allow(evictions):
        status = {"disruptionsAllowed": evictions}
        cluster.put(
            f"{budgets}/secret", {"metadata": {}, "spec": {"selector": {}}, "status": status}
        )

    for allowed, expected in ((1, UNSET), (2, 2)):
        allow(allowed)

        async def preempted(expected=expected):
            _, body = await scorer.fits(preempting(8), WEBHOOK)
            assert b"secret" not in body
            (fit,) = msgspec.json.decode(body, type=FitResponse).fits
            return not fit.fits and fit.preempts_others == expected

        await until_true(preempted)


@pytest.mark.usefixtures("tokens")
async def test_a_dry_run_counts_units_of_other_namespaces_that_would_be_preempted(scorer, cluster):
    cluster.put("/api/v1/nodes/gpu-0", NODE)
    for name, namespace, gpus in (("secret", "other", range(4)), ("own", "team", range(4, 8))):
        running(cluster, name, namespace, *gpus)

    async def preempted():
        _, body = await scorer.fits(preempting(8), WEBHOOK)
        assert b"secret" not in body
        (fit,) = msgspec.json.decode(body, type=FitResponse).fits
        named = [(unit.namespace, unit.name) for unit in fit.preempts or ()]
        return named == [("team", "own")] and fit.preempts_others == 1

    await until_true(preempted)


@pytest.mark.parametrize(("token", "status"), [("unknown", 401), ("wider", 401), ("other", 403)])
@pytest.mark.usefixtures("tokens")
async def test_only_the_webhook_may_request_dry_runs(scorer, token, status):
    found, body = await scorer.fits(QUESTION, token)

    assert (found, b"fits" in body) == (status, False)


@pytest.mark.parametrize(
    ("question", "status"),
    [
        pytest.param(b"{", 400, id="not JSON"),
        pytest.param(b'{"templates": 1}', 400, id="wrong type"),
        pytest.param(FitRequest([FitTemplate(Pod(), [])]), 413, id="no pods"),
        pytest.param(
            FitRequest([FitTemplate(Pod(), ["a"] * (MAX_PODS + 1))]), 413, id="too many pods"
        ),
    ],
)
@pytest.mark.usefixtures("tokens")
async def test_an_invalid_body_is_refused(scorer, question, status):
    assert (await scorer.fits(question, WEBHOOK))[0] == status


@pytest.mark.usefixtures("tokens")
@pytest.mark.parametrize("started", [{"write_seconds": 60}], indirect=True)
async def test_a_leader_that_is_not_synced_refuses_dry_runs(started, cluster):
    await until(lambda: cluster.get(LEASE))

    status, body = await started.fits(QUESTION, WEBHOOK)

    assert (status, b"not listed yet" in body) == (503, True)


async def test_the_lease_has_the_address_of_the_leader(scorer, cluster):
    address = f"127.0.0.1:{scorer.settings.fit_port}"

    await until(
        lambda: (
            (cluster.get(LEASE)["metadata"].get("annotations") or {}).get(keys.SCORER_ADDRESS)
            == address
        )
    )
