import asyncio
import json
import tracemalloc

import pytest
import yaml
from msgspec import to_builtins
from support.tokens import a_token
from support.waiting import until

from linkwise.admission.dry_run.dryrun import (
    MAX_NAMESPACES,
    MAX_TEMPLATES,
    dry_run,
    encode_dry_run,
    read_manifest,
)
from linkwise.admission.dry_run.others import ABOUT_OTHERS
from linkwise.cluster import keys
from linkwise.cluster.dry_run_proxy import NAMESPACE_AUDIENCE, TOKEN_HEADER
from linkwise.cluster.nodes.capacity import Capacity
from linkwise.cluster.whatif_api import MAX_PODS, FitResult, NodeLeft, PodFit
from linkwise.manifest.value import InputError
from linkwise.policy.snapshot import PolicySnapshot
from linkwise.runtime.http.authentication import OF_AN_ADDRESS
from webhook.dry_run_api import PROXIED

CONTAINER = "{name: c, resources: {limits: {aliyun.com/gpu: 1}}}"
POD = f"""\
apiVersion: v1
kind: Pod
metadata: {{name: train}}
spec: {{containers: [{CONTAINER}]}}
"""
DEPLOYMENT = f"""\
apiVersion: apps/v1
kind: Deployment
metadata: {{name: serve, namespace: team}}
spec:
  replicas: 3
  template: {{spec: {{containers: [{CONTAINER}]}}}}
"""


def judged(text, namespace="default"):
    manifest = read_manifest(text.encode(), namespace)
    namespaces = dict.fromkeys(manifest.namespaces)
    return dry_run(manifest, namespaces=namespaces, policy=PolicySnapshot(), capacity=Capacity())


def answered(text, fits="no scorer leads"):
    return json.loads(encode_dry_run(judged(text), fits))


def test_each_template_has_verdict_patch_and_rules():
    answer = answered(f"{POD}---\n{DEPLOYMENT}")

    pod, serve = answer["pods"]
    assert [report["verdict"] for report in (pod, serve)] == ["allowed", "allowed"]
    assert (pod["source"], serve["source"], serve["replicas"]) == ("body:1", "body:6", 3)
    assert pod["patched"]["spec"]["schedulingGates"] == [{"name": keys.GANG}]
    assert "gate single pod" in {step["rule"] for step in pod["patch"]}
    assert answer["policy"] == {"generation": 0, "digest": PolicySnapshot().digest}


def test_diff_is_a_unified_diff():
    (pod,) = answered(POD)["pods"]

    lines = pod["diff"].splitlines()
    assert lines[:2] == ["--- received", "+++ patched"]
    assert f"+  - name: {keys.GANG}" in lines
    assert not [line for line in lines if "&id" in line]


def test_denied_pod_has_findings_with_lines_and_no_diff():
    text = POD.replace("{aliyun.com/gpu: 1}", "\n  {aliyun.com/gpu-core.percentage: 20}")

    (pod,) = answered(text)["pods"]

    assert (pod["verdict"], pod["diff"], pod["patch"]) == ("denied", "", [])
    assert [report["source"] for report in pod["findings"]] == ["body:5"]


def test_namespaces_are_those_of_the_pods():
    manifest = read_manifest(f"{POD}---\n{DEPLOYMENT}---\n{POD}".encode(), "mine")

    assert manifest.namespaces == ("mine", "team")


def test_many_json_documents_have_lines_at_linear_cost():
    pods = [json.dumps({"apiVersion": "v1", "kind": "Service", "n": i}) for i in range(5000)]
    pods.append(json.dumps(yaml.safe_load(POD)))

    tracemalloc.start()
    (pod,) = answered("\n".join(pods))["pods"]
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert pod["source"] == "body:5001"
    # With the lines before it as padding, each of them would take as many bytes as it has lines.
    assert most < 5000 * 5000 / 2


def test_unknown_kinds_are_warnings():
    assert "no pods are described" in answered("apiVersion: v1\nkind: Service\n")["warnings"][0]


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        pytest.param(b"", "body:1: there is nothing in it", id="empty"),
        pytest.param(b"a: [", "body:", id="no YAML"),
        pytest.param(b"a: b\n\xff", "body:2: this is no UTF-8 text", id="no text"),
        pytest.param(b"[1]", "no Kubernetes object", id="no object"),
        pytest.param(
            f"{POD}---\n".encode() * (MAX_TEMPLATES + 1), "101 pod templates", id="templates"
        ),
        pytest.param(
            "---\n".join(
                POD.replace("name: train", f"name: a, namespace: n{i}")
                for i in range(MAX_NAMESPACES + 1)
            ).encode(),
            "11 namespaces",
            id="namespaces",
        ),
    ],
)
def test_invalid_or_too_large_manifest_is_refused(body, complaint):
    with pytest.raises(InputError, match=complaint):
        read_manifest(body, "default")


# ---- Where pods would fit.

NOT_OURS = """\
apiVersion: v1
kind: Pod
metadata: {name: plain}
spec: {containers: [{name: c}]}
"""
DENIED = POD.replace("gpu: 1", "gpu: 0")
NONE = DEPLOYMENT.replace("replicas: 3", "replicas: 0")
FIT = FitResult(
    fits=True,
    gang=None,
    pods=[PodFit("train", "gpu-0", [3])],
    nodes=[NodeLeft("gpu-0", "topology", 8, 4, 3)],
    bandwidth=None,
    best_possible=None,
    why="only gpu-0 takes it now",
    notes=[],
    reason=None,
)


def test_fit_request_has_patched_gpu_pods_that_are_allowed():
    result = judged("---\n".join((NOT_OURS, DENIED, NONE, POD, DEPLOYMENT)))

    pod, serve = result.fit_request.templates
    assert list(result.fit_templates) == [3, 4]
    assert (pod.names, serve.names) == (["train"], ["serve-0", "serve-1", "serve-2"])
    assert (pod.pod.metadata.namespace, serve.pod.metadata.namespace) == ("default", "team")
    assert [gate.name for gate in pod.pod.spec.scheduling_gates] == [keys.GANG]
    assert (pod.owner, bool(serve.owner)) == ("", True)


def test_each_template_has_its_own_placement_or_none():
    text = "---\n".join((NOT_OURS, POD, DENIED))

    answer = answered(text, [FIT])

    assert [pod["placement"] for pod in answer["pods"]] == [None, to_builtins(FIT), None]
    assert answer["warnings"] == []


def test_unknown_placement_is_a_note():
    answer = answered(POD, "no scorer leads now")

    (pod,) = answer["pods"]
    assert (pod["verdict"], pod["placement"]) == ("allowed", None)
    assert answer["notes"] == ["placement is not known: no scorer leads now."]
    assert answer["warnings"] == []


def test_fit_request_names_at_most_one_pod_above_the_limit():
    text = DEPLOYMENT.replace("replicas: 3", "replicas: 1000000000")

    assert judged(text).fit_request.pods == MAX_PODS + 1


# ---- Who may ask.


async def test_user_who_may_create_pods_is_answered(cluster, webhook):
    token = cluster.user("ann", "default", "team")
    cluster.namespace("team")

    status, _, body = await webhook.dry_run(f"{POD}---\n{DEPLOYMENT}", token)

    assert status == 200
    assert [pod["namespace"] for pod in json.loads(body)["pods"]] == ["default", "team"]
    assert webhook.answered()[-1].items() >= {"user": "ann", "templates": 2}.items()
    assert token not in json.dumps(webhook.lines)


async def test_json_and_a_query_namespace_are_accepted(cluster, webhook):
    token = cluster.user("ann", "team")
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": []}}

    status, _, body = await webhook.dry_run(
        json.dumps(pod), token, query="?namespace=team", content="application/json"
    )

    assert status == 200
    assert json.loads(body)["pods"][0]["namespace"] == "team"


@pytest.mark.parametrize(
    ("audiences", "name"),
    [
        pytest.param((keys.DRY_RUN_AUDIENCE,), "bob", id="unknown"),
        pytest.param((), "ann", id="any audience"),
        pytest.param(("https://kubernetes.default.svc",), "ann", id="the API server's"),
    ],
)
async def test_invalid_token_or_audience_is_unauthorized(cluster, webhook, audiences, name):
    known = cluster.user("ann", "default", audiences=audiences)

    status, headers, _ = await webhook.dry_run(POD, known if name == "ann" else "unknown")

    assert (status, headers["WWW-Authenticate"]) == (401, "Bearer")


async def test_request_without_a_token_is_unauthorized_without_a_review(cluster, webhook):
    status, _, _ = await webhook.dry_run(POD)

    assert status == 401
    assert cluster.asked == []


async def test_namespace_without_access_is_forbidden(cluster, webhook):
    token = cluster.user("ann", "default")

    status, _, body = await webhook.dry_run(f"{POD}---\n{DEPLOYMENT}", token)

    assert status == 403
    assert body == b"you may not create pods in namespace team\n"
    assert cluster.asked == ["TokenReview", "SubjectAccessReview", "SubjectAccessReview"]


ANNS = "system:serviceaccount:team:default"


async def by_namespace(webhook, token, text, **headers):
    """Ask as the API server's proxy passes it on."""
    sent = {TOKEN_HEADER: f"Bearer {token}", **headers}
    return await webhook.dry_run(text, query="?namespace=team", **sent)


async def test_a_token_of_a_namespace_asks_about_its_pods_without_a_right_of_the_account(
    cluster, webhook
):
    cluster.namespace("team")
    token = cluster.user(ANNS, audiences=[NAMESPACE_AUDIENCE])

    status, _, body = await by_namespace(webhook, token, POD)

    assert status == 200
    assert [pod["namespace"] for pod in json.loads(body)["pods"]] == ["team"]
    assert cluster.asked == ["TokenReview"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param(ANNS, f"{POD}---\n{POD}".replace("name: train", "name: a, namespace: b", 1),
                     id="another namespace"),
        pytest.param("system:serviceaccount:other:default", POD, id="account of another one"),
    ],
)  # fmt: skip
async def test_a_token_of_a_namespace_asks_about_nothing_else(cluster, webhook, name, text):
    for existing in ("team", "other"):
        cluster.namespace(existing)
    token = cluster.user(name, "team", "b", audiences=[NAMESPACE_AUDIENCE])

    status, _, body = await by_namespace(webhook, token, text)

    assert status == 403
    assert body.startswith(b"this token is for pods of namespace ")


@pytest.mark.parametrize(
    "token",
    [
        pytest.param("forged", id="no token"),
        pytest.param("a.b.c", id="no claims"),
        pytest.param("a.\u00e9.c", id="no base64"),
        pytest.param(a_token(ANNS, keys.DRY_RUN_AUDIENCE), id="another audience"),
        pytest.param(a_token("team", NAMESPACE_AUDIENCE), id="no account"),
        pytest.param(a_token("system:serviceaccount:", NAMESPACE_AUDIENCE), id="no name"),
        pytest.param(
            a_token("system:serviceaccount:none:default", NAMESPACE_AUDIENCE), id="no namespace"
        ),
    ],
)
async def test_a_token_that_cannot_be_of_a_namespace_costs_no_review(cluster, webhook, token):
    assert (await by_namespace(webhook, token, POD))[0] == 401
    assert cluster.asked == []


async def test_forged_tokens_of_other_namespaces_keep_no_places_from_a_new_one(cluster, webhook):
    for name in ("team", "their-0", "their-1", "their-2"):
        cluster.namespace(name)
    token = cluster.user(ANNS, audiences=[NAMESPACE_AUDIENCE])
    cluster.reviewing = asyncio.Event()
    flood = [
        asyncio.create_task(
            by_namespace(
                webhook,
                a_token(f"system:serviceaccount:their-{i % 3}:a", NAMESPACE_AUDIENCE, by=str(i)),
                POD,
            )
        )
        for i in range(PROXIED + 1)
    ]
    # One of them has made room for another, and 4 of each namespace are reviewed.
    done, _ = await asyncio.wait(flood, return_when=asyncio.FIRST_COMPLETED)
    assert [task.result()[0] for task in done] == [503]
    await until(lambda: len(cluster.asked) == 3 * OF_AN_ADDRESS)
    # What is not even like one takes no place.
    assert (await by_namespace(webhook, "forged", POD))[0] == 401

    asked = asyncio.create_task(by_namespace(webhook, token, POD))
    await until(lambda: len(cluster.asked) == 3 * OF_AN_ADDRESS + 1)
    cluster.reviewing.set()

    assert (await asked)[0] == 200
    for task in flood:
        task.cancel()
    await asyncio.gather(*flood, return_exceptions=True)


@pytest.mark.parametrize(
    ("home", "note"),
    [
        pytest.param("team", "no scorer leads", id="own"),
        pytest.param("other", ABOUT_OTHERS, id="another"),
    ],
)
async def test_a_token_of_a_namespace_asks_for_no_placement_beside_pods_of_others(
    cluster, webhook, home, note
):
    cluster.namespace("team")
    token = cluster.user(ANNS, audiences=[NAMESPACE_AUDIENCE])
    term = f"{{topologyKey: kubernetes.io/hostname, labelSelector: {{}}, namespaces: [{home}]}}"
    rule = f"{{requiredDuringSchedulingIgnoredDuringExecution: [{term}]}}"
    pod = POD.replace("spec: {", f"spec: {{affinity: {{podAffinity: {rule}}}, ")

    status, _, body = await by_namespace(webhook, token, pod)

    (said,) = json.loads(body)["notes"]
    assert (status, note in said) == (200, True), said


async def test_each_header_takes_tokens_of_its_own_audience_alone(cluster, webhook):
    own = cluster.user(ANNS, "team", audiences=[NAMESPACE_AUDIENCE])
    usual = cluster.user("ann", "team")

    assert (await webhook.dry_run(POD, own, query="?namespace=team"))[0] == 401
    assert (await by_namespace(webhook, usual, POD))[0] == 401
    # An API server's proxy removes the other header; who calls directly has no use of two.
    both = {"Authorization": f"Bearer {usual}"}
    assert (await by_namespace(webhook, "forged", POD, **both))[0] == 401


@pytest.mark.parametrize(
    ("text", "query"),
    [
        pytest.param("a: [", "", id="body"),
        pytest.param(POD.replace("[{", "7 #"), "", id="pod"),
        pytest.param(POD, "?namespace=A", id="namespace"),
        pytest.param(POD, "?dryRun=All", id="query"),
    ],
)
async def test_invalid_body_or_query_is_a_bad_request(cluster, webhook, text, query):
    status, _, _ = await webhook.dry_run(text, cluster.user("ann", "default"), query=query)

    assert status == 400


async def test_failed_access_review_is_retried(cluster, webhook):
    cluster.users["token-ann"] = ["no status"]

    status, headers, _ = await webhook.dry_run(POD, "token-ann")

    assert (status, headers["Retry-After"]) == (503, "1")


@pytest.fixture
def bad_policy(cluster):
    cluster.policy("strict: perhaps")


@pytest.mark.usefixtures("bad_policy")
async def test_dry_run_without_a_valid_policy_is_unavailable(cluster, started):
    status, _, _ = await started.dry_run(POD, cluster.user("ann", "default"))

    assert status == 503


@pytest.mark.parametrize(("users", "refused"), [(1, 7), (2, 4), (10, 0)])
async def test_dry_runs_in_progress_are_bounded_by_user(cluster, webhook, users, refused):
    held = asyncio.Event()

    tokens = [cluster.user(f"u{i % users}", "default") for i in range(10)]
    for token in dict.fromkeys(tokens):
        assert (await webhook.dry_run(POD, token))[0] == 200
    cluster.held = held
    runs = [asyncio.create_task(webhook.dry_run(POD, token)) for token in tokens]
    done = set()
    while len(done) < refused:
        done, _ = await asyncio.wait(runs, return_when=asyncio.FIRST_COMPLETED, timeout=0.01)
    held.set()

    answers = [status for status, _, _ in await asyncio.gather(*runs)]
    assert sorted(answers) == [200] * (10 - refused) + [503] * refused
