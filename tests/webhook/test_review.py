import base64
import json

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.admission import review_response
from support.builders import a_pod
from support.integers import VALUES, integers, with_number
from support.strategies import pods

from linkwise.cluster import keys
from linkwise.cluster.nodes.capacity import Capacity
from linkwise.cluster.objects.pod import NewPod
from linkwise.policy.document import parse_policy
from linkwise.policy.profile import parse_profiles
from linkwise.policy.snapshot import PolicySnapshot
from tools.bench.admission.review import review_bytes, run, worker
from webhook.review import ProtocolError, parse_pod_review

POLICY = PolicySnapshot()


def a_review(pod=None, **request):
    kind = {"group": "", "version": "v1", "kind": "Pod"}
    request = {
        "uid": "42",
        "kind": kind,
        "operation": "CREATE",
        "namespace": "default",
        "object": a_pod({keys.GPU_WHOLE: 1}) if pod is None else pod,
        **request,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def answered(review, policy=POLICY, namespaces=None):
    text = review if isinstance(review, bytes) else json.dumps(review).encode()
    namespaces = {"default": {}} if namespaces is None else namespaces
    return review_response(text, namespaces=namespaces, policy=policy, capacity=Capacity())


def response(review, **options):
    answer = json.loads(answered(review, **options))
    assert answer["apiVersion"] == "admission.k8s.io/v1"
    assert answer["kind"] == "AdmissionReview"
    return answer["response"]


def patch_of(response):
    return json.loads(base64.b64decode(response["patch"]))


# ---- On the wire, byte for byte.


def test_response_for_an_unchanged_pod_has_only_its_uid():
    assert answered(a_review(a_pod({"cpu": 1}))) == (
        b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview",'
        b'"response":{"uid":"42","allowed":true}}'
    )


def test_response_for_a_patched_pod():
    pod = a_pod({keys.GPU_MEM: 4}, annotations={keys.TERM: "7"})
    patch = (
        b'[{"op":"remove","path":"/metadata/annotations/linkwise.dev~1term"},'
        b'{"op":"add","path":"/spec/schedulingGates","value":[{"name":"linkwise.dev/gang"}]},'
        b'{"op":"add","path":"/spec/containers/0/env","value":['
        b'{"name":"NVIDIA_VISIBLE_DEVICES","valueFrom":{"fieldRef":{"fieldPath":'
        b"\"metadata.annotations['linkwise.dev/visible-devices']\"}}},"
        b'{"name":"ALIYUN_COM_GPU_MEM_IDX","valueFrom":{"fieldRef":{"fieldPath":'
        b"\"metadata.annotations['ALIYUN_COM_GPU_MEM_IDX']\"}}},"
        b'{"name":"ALIYUN_COM_GPU_MEM_POD","valueFrom":{"fieldRef":{"fieldPath":'
        b"\"metadata.annotations['ALIYUN_COM_GPU_MEM_POD']\"}}},"
        b'{"name":"ALIYUN_COM_GPU_MEM_DEV","valueFrom":{"fieldRef":{"fieldPath":'
        b"\"metadata.annotations['ALIYUN_COM_GPU_MEM_DEV']\"}}},"
        b'{"name":"ALIYUN_COM_GPU_MEM_CONTAINER","value":"4"}]}]'
    )

    assert answered(a_review(pod)) == (
        b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"42",'
        b'"allowed":true,"patch":"' + base64.b64encode(patch) + b'","patchType":"JSONPatch",'
        b'"warnings":["LW115 annotation linkwise.dev/term is removed: '
        b'the scorer writes it when it chooses the GPUs"],'
        b'"auditAnnotations":{"policy":"generation=0 digest=' + POLICY.digest.encode() + b'",'
        b'"findings":"LW115","rules":"record removed, gate single pod, visible devices, share"}}}'
    )


def test_response_for_a_denied_pod():
    pod = a_pod({keys.GPU_MEM: 4, keys.GPU_CORE: 22})

    answer = response(a_review(pod, name="pod"))

    assert answer["allowed"] is False
    assert "patch" not in answer
    assert "patchType" not in answer
    status = answer["status"]
    field = "spec.containers[0].resources.limits[aliyun.com/gpu-core.percentage]"
    assert (status["status"], status["code"], status["reason"]) == ("Failure", 422, "Invalid")
    assert status["message"].startswith(f"{field}: 22 is not allowed")
    assert "20 or 25" in status["message"]
    (cause,) = status["details"].pop("causes")
    assert (cause["reason"], cause["field"]) == ("FieldValueInvalid", field)
    assert f"{field}: {cause['message']}" == status["message"]
    assert status["details"] == {"name": "pod", "kind": "Pod"}


def test_denied_pod_without_a_name_has_its_generate_name():
    pod = a_pod({keys.GPU_CORE: 20})
    pod["metadata"] = {"generateName": "train-"}

    assert response(a_review(pod))["status"]["details"]["name"] == "train-"


def test_denial_is_printable():
    pod = a_pod({keys.NVIDIA_GPU: 1}, labels={keys.COMPUTE_CLASS: "fast\u0007\nnow"})

    status = response(a_review(pod))["status"]

    assert status["message"].isprintable()
    assert all(cause["message"].isprintable() for cause in status["details"]["causes"])


# ---- What is asked.


@pytest.mark.parametrize(
    "request_",
    [
        {"operation": "UPDATE"},
        {"operation": "DELETE", "object": None},
        {"operation": "CONNECT"},
        {"subResource": "ephemeralcontainers"},
        {"kind": {"group": "apps", "version": "v1", "kind": "Deployment"}},
        {"kind": {"group": "other", "version": "v1", "kind": "Pod"}, "object": [1, 2]},
    ],
)
def test_requests_other_than_pod_creation_are_unchanged(request_):
    assert response(a_review(**request_)) == {"uid": "42", "allowed": True}


def test_namespace_of_the_request_has_precedence_over_the_object():
    profile = {
        "name": "team",
        "namespaceSelector": {"matchLabels": {"team": "vision"}},
        "effect": {"labels": {"team": "vision"}},
    }
    policy = PolicySnapshot(profiles=parse_profiles(json.dumps([profile])))
    pod = a_pod({keys.NVIDIA_GPU: 1})

    inside = response(
        a_review(pod, namespace="a"), policy=policy, namespaces={"a": {"team": "vision"}}
    )
    outside = response(a_review(pod, namespace="b"), policy=policy, namespaces={"b": {}})

    assert patch_of(inside)[0]["path"] == "/metadata/labels"
    assert "patch" not in outside


def test_dry_run_review_is_answered_like_any_other():
    assert parse_pod_review(json.dumps(a_review(dryRun=True)).encode()).dry_run is True
    assert answered(a_review(dryRun=True)) == answered(a_review())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "cannot be read"),
        (b"{", "cannot be read"),
        (b"[]", "cannot be read"),
        (b"\xff", "cannot be read"),
        (b'{"a":' * 100_000, "cannot be read"),
        (b'{"apiVersion":"v1","kind":"Pod"}', "not a request of admission.k8s.io/v1"),
        (
            b'{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","request":'
            b'{"uid":"1","kind":{}}}',
            "not a request",
        ),
        (b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}', "not a request"),
        (json.dumps(a_review(uid="")).encode(), "without uid"),
        (json.dumps(a_review(uid="\n")).encode().replace(b"v1", b"v\\u0007", 1), "not a request"),
    ],
)
def test_invalid_review_is_refused_with_the_reason(text, reason):
    with pytest.raises(ProtocolError, match=reason) as error:
        parse_pod_review(text)

    assert str(error.value).isprintable()


@pytest.mark.parametrize(
    ("pod", "field"),
    [
        pytest.param({"metadata": {}, "spec": {"containers": 3}}, "spec.containers", id="type"),
        pytest.param({"metadata": None, "spec": {}}, "metadata", id="no metadata"),
        pytest.param({"metadata": {}}, "metadata", id="no spec"),
        pytest.param(a_pod(labels=dict.fromkeys(map(str, range(5000)), "")), "labels", id="labels"),
        pytest.param(a_pod(*[{keys.GPU_WHOLE: 1}] * 1100), "spec.containers", id="containers"),
    ],
)
def test_undecodable_pod_is_denied_instead_of_an_error_response(pod, field):
    answer = response(a_review(pod, name="pod"))

    assert (answer["uid"], answer["allowed"]) == ("42", False)
    status = answer["status"]
    assert (status["code"], status["reason"], status["details"]["name"]) == (422, "Invalid", "pod")
    assert "the pod cannot be read" in status["message"]
    assert field in status["details"]["causes"][0]["field"]
    assert answer["auditAnnotations"] == {"findings": "LW119"}


def test_pod_nested_too_deep_to_skip_is_denied():
    request = a_review(name="pod")["request"]
    parts = {**request, "object": None}
    text = json.dumps({**a_review(), "request": parts}).encode()
    assert text.endswith(b'"object": null, "name": "pod"}}')
    deep = b'{"a":' * 9000 + b"1" + b"}" * 9000
    text = text.replace(
        b'"object": null, "name": "pod"}}', b'"name":"pod","object":' + deep + b"}}"
    )

    answer = response(text)

    assert (answer["uid"], answer["allowed"]) == ("42", False)
    assert answer["status"]["details"]["name"] == "pod"


def user(name, *groups):
    return {"username": name, "groups": [*groups, "system:authenticated"]}


NODE_A = user("system:node:a", keys.NODES_GROUP)


@pytest.mark.parametrize(
    ("who", "node", "believed"),
    [
        pytest.param(NODE_A, "a", True, id="its node"),
        pytest.param(NODE_A, "b", False, id="another node"),
        pytest.param(user("system:node:a"), "a", False, id="not in the group"),
        pytest.param(user("tenant", keys.NODES_GROUP), "a", False, id="not its name"),
        pytest.param(user("system:serviceaccount:team:tenant"), "a", False, id="a tenant"),
        pytest.param({}, "a", False, id="no user"),
    ],
)
def test_mirror_pod_is_accepted_only_from_its_own_node(who, node, believed):
    pod = a_pod({keys.GPU_WHOLE: 1}, annotations={keys.MIRROR_POD: "x"}, nodeName=node)

    answer = response(a_review(pod, userInfo=who))

    assert answer["allowed"] is believed
    assert believed or "LW112" in answer["status"]["message"]


PROFILES = PolicySnapshot(
    parse_policy("profilesAll: true"),
    parse_profiles(json.dumps([{"name": "all", "effect": {"labels": {"a": "b"}}}])),
)


@given(
    pod=pods(),
    absent=st.sets(st.sampled_from(["metadata", "spec"])),
    written=st.sampled_from([None, {}, ...]),
)
def test_pod_without_metadata_or_spec_is_denied_or_its_patch_applies(pod, absent, written):
    for name in absent:
        if written is ...:
            del pod[name]
        else:
            pod[name] = written

    answer = response(a_review(pod), policy=PROFILES)

    if "patch" in answer:
        jsonpatch.apply_patch(pod, patch_of(answer))


@given(text=st.binary(max_size=60))
def test_any_bytes_are_a_review_or_refused(text):
    with pytest.raises(ProtocolError):
        parse_pod_review(text)


def test_benchmark_review_has_its_size_and_is_patched_as_a_gang_worker():
    review = review_bytes()

    answer = json.loads(run(review))["response"]
    pod = jsonpatch.apply_patch(json.loads(review)["request"]["object"], patch_of(answer))

    assert 6500 <= len(review) <= 6700
    assert pod["spec"]["schedulingGates"] == [{"name": keys.GANG}]
    assert pod["metadata"] == worker()["metadata"]
    assert "warnings" not in answer


@pytest.mark.parametrize("number", VALUES)
def test_any_number_in_a_pod_has_an_answer(number):
    pod = a_pod({keys.GPU_WHOLE: 1, "cpu": 2}, labels={keys.GPU_COUNT: "1"})
    places = list(integers(NewPod))
    assert places
    for place in places:
        assert response(a_review(with_number(pod, place, number)))["uid"] == "42"
