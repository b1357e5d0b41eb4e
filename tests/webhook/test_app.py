import asyncio
import base64
import json
import re

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry
from support.builders import a_pod
from support.waiting import PATIENCE, until, until_true

from linkwise.cluster import keys
from linkwise.cluster.scorer_lease import LEASE
from linkwise.runtime.http.types import HttpRequest
from linkwise.runtime.kube.client import Kube
from linkwise.runtime.process.worker import Worker
from webhook import app
from webhook.claim_reader import ClaimReader
from webhook.informers import Informers
from webhook.metrics import Metrics

BY_TEAM = {
    "name": "team",
    "namespaceSelector": {"matchLabels": {"team": "a"}},
    "effect": {"labels": {"team": "a"}},
}
DRIVER = {
    "name": "driver",
    "objectSelector": {"matchLabels": {keys.COMPUTE_CLASS: "gpu-hpn"}},
    "effect": {"labels": {keys.DRIVER_VERSION: "1.5.0"}},
}


def a_review(pod, **request):
    kind = {"group": "", "version": "v1", "kind": "Pod"}
    request = {"kind": kind, "operation": "CREATE", "namespace": "default", **request}
    request = {"uid": "42", "object": pod, **request}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def a_map_review(key, text, *, name, namespace, operation="CREATE"):
    kind = {"group": "", "version": "v1", "kind": "ConfigMap"}
    return a_review(
        {"data": {key: text}}, kind=kind, name=name, namespace=namespace, operation=operation
    )


def a_profile_review(text, **options):
    source = {"name": keys.PROFILE_NAME, "namespace": keys.PROFILE_NAMESPACE}
    return a_map_review(keys.PROFILE_KEY, text, **{**source, **options})


def patch_of(response):
    return json.loads(base64.b64decode(response["patch"]))


def labels_added(response):
    return [step["value"] for step in patch_of(response) if step["path"].startswith("/metadata/la")]


async def until_sample(webhook, *samples):
    """Wait until the metrics show these lines."""

    async def are_shown():
        _, shown = await webhook.probe("/metrics")
        return all(f"\n{sample}\n" in shown for sample in samples)

    await until_true(are_shown)


# ---- Pods.


async def test_patched_pod_is_logged_and_counted(webhook):
    answer = await webhook.review(a_review(a_pod({keys.GPU_WHOLE: 1}), name="train"))

    assert (answer["uid"], answer["allowed"]) == ("42", True)
    assert "/spec/schedulingGates" in {step["path"] for step in patch_of(answer)}
    (line,) = webhook.answered()
    fields = {
        "path": "/mutate",
        "status": 200,
        "uid": "42",
        "namespace": "default",
        "name": "train",
    }
    assert line.items() >= {**fields, "verdict": "allowed", "findings": []}.items()
    await until_sample(
        webhook,
        'linkwise_admission_reviews_total{dry_run="false",verdict="allowed"} 1.0',
        'linkwise_http_requests_total{code="200",path="/mutate"} 1.0',
    )


async def test_each_pod_gets_a_claim_of_another_name(webhook):
    pod = a_pod({keys.NVIDIA_GPU: 1}, labels={keys.CLAIMS: "true"})

    async def claim():
        steps = patch_of(await webhook.review(a_review(pod)))
        ((reference,),) = (each["value"] for each in steps if each["path"].endswith("Claims"))
        return reference["resourceClaimName"]

    names = {await claim() for _ in range(5)}

    assert len(names) == 5
    assert all(re.fullmatch("lw-[0-9a-f]{32}", name) for name in names)


async def test_denied_pod_has_its_findings_counted(webhook):
    pod = a_pod({keys.GPU_MEM: 4, keys.GPU_CORE: 22})

    answer = await webhook.review(a_review(pod, dryRun=True))

    assert answer["allowed"] is False
    assert webhook.answered()[-1]["findings"] == ["LW101"]
    await until_sample(
        webhook,
        'linkwise_admission_reviews_total{dry_run="true",verdict="denied"} 1.0',
        'linkwise_admission_findings_total{code="LW101"} 1.0',
    )


async def test_requests_other_than_pod_creation_are_allowed(webhook):
    kind = {"group": "apps", "version": "v1", "kind": "Deployment"}

    answer = await webhook.review(a_review({}, kind=kind))

    assert answer == {"uid": "42", "allowed": True}


@pytest.mark.parametrize("path", ["/mutate", "/validate"])
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"apiVersion": "v1", "kind": "Pod"}'])
async def test_body_that_is_not_a_review_is_a_bad_request(webhook, path, body):
    status, _, text = await webhook.post(path, body)

    assert status == 400
    assert text.decode().isprintable() or text.endswith(b"\n")


async def test_request_above_the_capacity_of_watched_nodes_is_a_finding(cluster, webhook):
    cluster.node("big", {keys.NODE_MODE: "topology"}, **{keys.GPU_WHOLE: 4})
    review = a_review(a_pod({keys.GPU_WHOLE: 8}))

    async def is_told():
        warnings = (await webhook.review(review)).get("warnings", [""])
        return "at most 4 on one node" in warnings[0]

    await until_true(is_told)


# ---- Namespaces.


async def test_review_waits_for_a_new_namespace(cluster, monkeypatch):
    monkeypatch.setattr(app, "NAMESPACE_TIMEOUT", PATIENCE)
    cluster.profiles(BY_TEAM)
    review = a_review(a_pod({keys.GPU_WHOLE: 1}), namespace="late")
    registry = CollectorRegistry()
    async with Kube(cluster.url) as kube, asyncio.TaskGroup() as group:
        informers = Informers(kube, instance="replica-0")
        following = group.create_task(informers.run())
        await until(lambda: informers.config.snapshot.profiles.selectors)
        admission = app.Admission(
            informers, Metrics(registry), Worker((), memory=0, seconds=0), ClaimReader(kube)
        )
        body = json.dumps(review).encode()

        pending = group.create_task(admission.mutate(HttpRequest("/mutate", "", {}, body)))
        await asyncio.sleep(0)
        assert not pending.done()
        cluster.namespace("late", team="a")

        answer = json.loads((await pending).body)["response"]
        following.cancel()
    assert labels_added(answer) == [{"team": "a"}]
    waits = registry.get_sample_value("linkwise_admission_namespace_waits_total", {"came": "true"})
    assert waits == 1


async def test_review_of_an_unknown_namespace_is_retried(cluster, webhook):
    cluster.profiles(BY_TEAM)
    await until(lambda: webhook.lines[-1].get("msg") == "Policy loaded")
    review = a_review(a_pod({keys.GPU_WHOLE: 1}), namespace="never")

    status, headers, _ = await webhook.post("/mutate", review)

    assert (status, headers["Retry-After"]) == (503, "1")


async def test_a_pod_of_an_unknown_namespace_does_not_keep_variables_that_give_it_gpus(
    cluster, webhook
):
    """The webhook fails open: after a refusal the pod would be created as it is."""
    cluster.profiles(BY_TEAM)
    await until(lambda: webhook.lines[-1].get("msg") == "Policy loaded")
    pod = a_pod({})
    pod["spec"]["containers"][0]["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]

    answer = await webhook.review(a_review(pod, namespace="never"))

    (step,) = patch_of(answer)
    assert step["path"].startswith("/spec/containers/0/env")
    assert "all" not in json.dumps(step)
    assert "void" in json.dumps(step)
    assert any("LW506" in warning for warning in answer["warnings"])


async def test_review_does_not_wait_where_no_profile_selects_namespaces(webhook):
    answer = await webhook.review(a_review(a_pod({keys.GPU_WHOLE: 1}), namespace="never"))

    assert answer["allowed"] is True


# ---- Claims.


@pytest.mark.parametrize("namespace", ["default", "../../../../api/v1/nodes?watch=true&x="])
async def test_nothing_is_read_for_a_caller_that_may_be_anybody(cluster, webhook, namespace):
    """Without client certificates, also no template of another tenant."""
    cluster.policy("placement: {templates: auto}")
    cluster.node("claims", {keys.NODE_MODE: "topology"})
    lease = {"metadata": {"annotations": {keys.CLAIMS_NODES: "8"}}}

    async def is_known(_request):
        return web.json_response(lease)

    cluster.collections[LEASE].faults["list"].extend([is_known] * 1000)
    claim = {"name": "gpus", "resourceClaimTemplateName": "secret"}
    review = a_review(a_pod({}, resourceClaims=[claim]), namespace=namespace)

    async def is_left():
        warnings = (await webhook.review(review)).get("warnings", [""])
        return "the webhook requires no client" in warnings[0]

    await until_true(is_left)
    assert not [path for path in cluster.collections if "resource.k8s.io" in path]


# ---- Decisions.


async def test_changed_profile_takes_effect(cluster, webhook):
    pod = a_pod({keys.NVIDIA_GPU: 1}, labels={keys.COMPUTE_CLASS: "gpu-hpn"})
    cluster.profiles(DRIVER)
    await until(lambda: webhook.lines[-1].get("generation") == 1)

    assert labels_added(await webhook.review(a_review(pod))) == ["1.5.0"]

    cluster.profiles(text="[{]")
    await until(lambda: webhook.lines[-1].get("msg") == "Policy rejected")
    assert labels_added(await webhook.review(a_review(pod))) == ["1.5.0"]
    await until_sample(webhook, f'linkwise_policy_refused{{config_map="{keys.PROFILE_NAME}"}} 1.0')
    assert (await webhook.probe())[0] == 200

    cluster.forget_profiles()
    await until(lambda: webhook.lines[-1].get("generation") == 2)
    assert labels_added(await webhook.review(a_review(pod))) == []


@pytest.mark.usefixtures("webhook")
async def test_invalid_config_map_gets_an_event(cluster):
    cluster.profiles(text='[\n{"name": ""}]')
    await until(cluster.events)

    (event,) = cluster.events()
    assert event["involvedObject"]["name"] == keys.PROFILE_NAME
    assert (event["type"], event["reason"]) == ("Warning", "PolicyRefused")
    assert "line 2" in event["message"]
    assert "name is empty" in event["message"]


@pytest.fixture
def bad_policy(cluster):
    cluster.policy("strict: perhaps")


@pytest.mark.usefixtures("bad_policy")
async def test_webhook_with_an_invalid_policy_at_start_is_not_ready_until_it_is_fixed(
    cluster, started
):
    await until(lambda: any(line["msg"] == "Policy rejected" for line in started.lines))
    status, _, _ = await started.post("/mutate", a_review(a_pod({keys.GPU_WHOLE: 1})))
    ready, reason = await started.probe()

    assert (status, ready) == (503, 503)
    assert f"ConfigMap {keys.POLICY_NAMESPACE}/{keys.POLICY_NAME}" in reason
    assert "line 1" in reason
    assert (await started.probe("/healthz"))[0] == 200

    cluster.policy("strict: false")
    await started.ready()


# ---- ConfigMaps.


async def test_invalid_profiles_are_denied_with_all_problems_and_lines(webhook):
    text = '[{"name": ""},\n {"name": "b", "effects": {}}]'

    answer = await webhook.review(a_profile_review(text), "/validate")

    message = answer["status"]["message"]
    assert answer["allowed"] is False
    assert "line 1: [0].name" in message
    assert "line 2: [1].effects" in message
    assert [cause["field"] for cause in answer["status"]["details"]["causes"]] == [
        f"data[{keys.PROFILE_KEY}]"
    ] * 2
    assert webhook.answered()[-1]["verdict"] == "denied"


async def test_invalid_policy_is_denied(webhook):
    source = {"name": keys.POLICY_NAME, "namespace": keys.POLICY_NAMESPACE}
    text = "strict: perhaps\nmachine: []\n"

    answer = await webhook.review(a_map_review(keys.POLICY_KEY, text, **source), "/validate")

    assert answer["allowed"] is False
    assert "line 1: strict" in answer["status"]["message"]
    assert "line 2: machine" in answer["status"]["message"]


async def test_valid_profiles_are_allowed_with_warnings(webhook):
    review = a_profile_review('[{"name": "all", "effect": {"labels": {"a": "b"}}}]')

    answer = await webhook.review(review, "/validate")

    assert answer["allowed"] is True
    assert answer["warnings"][0].startswith("LW503 line 1: ")


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"name": "other"}, id="name"),
        pytest.param({"namespace": "other"}, id="namespace"),
        pytest.param({"operation": "DELETE"}, id="operation"),
    ],
)
async def test_other_config_maps_are_allowed(webhook, options):
    answer = await webhook.review(a_profile_review("[{", **options), "/validate")

    assert answer == {"uid": "42", "allowed": True}
