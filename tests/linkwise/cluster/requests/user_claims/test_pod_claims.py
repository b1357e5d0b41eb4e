"""The GPUs of pods by the claims of their templates, and the annotation that says so."""

import json

import msgspec
import pytest
from support.builders import a_pod

from linkwise.cluster import keys
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.requests.request import Family
from linkwise.cluster.requests.request_reader import read_request
from linkwise.cluster.requests.user_claims.claim_spec import ClaimedDevices, Delegated
from linkwise.cluster.requests.user_claims.matching import Constraint
from linkwise.cluster.requests.user_claims.pod_claims import (
    CLAIM,
    TEMPLATE,
    ClaimSource,
    UserClaims,
    claim_sources,
    claims_of_user,
    read_user_claims,
)

A100 = "device.attributes['gpu.nvidia.com'].productName.contains(\"A100\")"


def a_templated_pod(*templates, gates=(keys.GANG,), annotations=None, **spec):
    claims = [
        {"name": f"c{i}", "resourceClaimTemplateName": one} for i, one in enumerate(templates)
    ]
    pod = a_pod({}, annotations=annotations or {}, resourceClaims=claims, **spec)
    pod["spec"]["schedulingGates"] = [{"name": gate} for gate in gates]
    pod["spec"]["containers"][0]["resources"] = {"claims": [{"name": "c0"}]}
    return msgspec.convert(pod, Pod)


def of_templates(asked):
    return {ClaimSource(TEMPLATE, name): what for name, what in asked.items()}


ONE, TWO = ClaimedDevices((("gpu", 1),)), ClaimedDevices((("a", 1), ("b", 1)))
MATCHED = ClaimedDevices(
    (("a", 1), ("b", 2), ("c", 1)),
    constraints=(Constraint("x/y", ("a", "b")), Constraint("x/z")),
)
CHOSEN = ClaimedDevices((("gpu", 2),), (A100, "device.attributes['gpu.nvidia.com'].minor < 4"))
DELEGATED = Delegated("request 'x' has adminAccess")


@pytest.mark.parametrize(
    ("templates", "fields", "found"),
    [
        (["one"], {}, UserClaims((("c0", ONE),))),
        (["nic", "two"], {}, UserClaims((("c1", TWO),))),
        (["nic"], {}, None),
        (["unknown"], {}, None),
        (["one", "two", "one"], {}, UserClaims((("c0", ONE), ("c1", TWO), ("c2", ONE)))),
        (["one", "chosen"], {}, "its claims have different selectors"),
        (["one", "admin"], {}, "template admin: request 'x' has adminAccess"),
    ],
)
def test_a_pod_gets_gpus_by_its_templates(templates, fields, found):
    asked = {"one": ONE, "two": TWO, "nic": None, "admin": DELEGATED, "chosen": CHOSEN}
    result = claims_of_user(a_templated_pod(*templates, **fields).spec, of_templates(asked))

    if isinstance(found, str):
        assert isinstance(result, Delegated)
        assert found in result.reason
    else:
        assert result == found


def test_a_claim_by_name_or_a_resource_beside_it_leaves_the_pod_to_the_scheduler():
    pod = a_pod(
        {keys.NVIDIA_GPU: 1}, resourceClaims=[{"name": "g", "resourceClaimTemplateName": "one"}]
    )
    beside = claims_of_user(msgspec.convert(pod, Pod).spec, of_templates({"one": ONE}))
    claims = [
        {"name": "g", "resourceClaimTemplateName": "one"},
        {"name": "h", "resourceClaimName": "shared"},
    ]
    asked = of_templates({"one": ONE}) | {ClaimSource(CLAIM, "shared"): ONE}
    named = claims_of_user(msgspec.convert(a_pod({}, resourceClaims=claims), Pod).spec, asked)

    assert isinstance(beside, Delegated)
    assert isinstance(named, Delegated)
    assert "nvidia.com/gpu, too" in beside.reason
    assert "claim shared: other pods may share it" in named.reason


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["a"], UserClaims((("c0", ONE),))),
        (["a", "b"], UserClaims((("c0", ONE), ("c1", TWO)))),
        (["nic"], None),
        (["a", "nic"], UserClaims((("c0", ONE),))),
        (["a", "a"], Delegated("it names one claim twice")),
        (["a", "admin"], Delegated("claim admin: request 'x' has adminAccess")),
        (["lw-00000000000000000000000000000000"], None),
    ],
)
def test_a_pod_gets_gpus_by_the_claims_that_it_names(names, found):
    claims = [{"name": f"c{i}", "resourceClaimName": name} for i, name in enumerate(names)]
    asked = {"a": ONE, "b": TWO, "nic": None, "admin": DELEGATED, "lw-" + "0" * 32: ONE}
    spec = msgspec.convert(a_pod({}, resourceClaims=claims), Pod).spec

    sources = {ClaimSource(CLAIM, name): what for name, what in asked.items()}
    assert claims_of_user(spec, sources) == found


def annotated(claim, **fields):
    return a_templated_pod(
        "one", "two", annotations={keys.CLAIMED_GPUS: claim.annotation}, **fields
    )


@pytest.mark.parametrize(
    "claim",
    [
        UserClaims((("c0", ONE),)),
        UserClaims((("c1", TWO),)),
        UserClaims((("c0", CHOSEN),)),
        UserClaims((("c1", CHOSEN), ("c0", CHOSEN))),
        UserClaims((("c1", ONE), ("c0", MATCHED))),
    ],
    ids=["one request", "two requests", "selectors", "two claims", "constraints"],
)
def test_what_admission_writes_is_read_again(claim):
    pod = annotated(claim)

    assert claim_sources(pod.spec) == {*of_templates({"one": None, "two": None})}
    assert read_user_claims(pod) == (claim, ())
    request, findings = read_request(pod)
    assert not findings
    assert (request.family, request.gpus) == (Family.WHOLE, claim.gpus)
    assert request.by_claim
    assert request.places
    assert request.user_claims == claim


def test_without_gate_and_record_the_annotation_means_nothing():
    claim = UserClaims((("c0", ONE),))

    assert read_request(annotated(claim, gates=()))[0].family is None
    recorded = annotated(claim, gates=())
    recorded.metadata.annotations[keys.ALLOCATION] = "{}"
    assert read_request(recorded)[0].user_claims == claim


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        '{"c0/gpu": 0}',
        '{"c0/gpu": 33}',
        '{"c0/gpu": "1"}',
        '{"c0/gpu": 1, "c9/gpu": 1}',
        '{"c9/gpu": 1}',
        '{"container-0": 1}',
        '{"c0/gpu": 1, "selectors": "true"}',
        '{"c0/gpu": 1, "selectors": [1]}',
        '{"c0/gpu": 1, "selectors": ["device.attributes.size() > 1"]}',
        json.dumps({"c0/gpu": 1, "selectors": ["true"] * 9}),
        '{"selectors": ["true"]}',
        '{"c0/gpu": ["true"]}',
        '{"c0/gpu": 1, "constraints": ["true"]}',
        '{"c0/gpu": 1, "constraints": {"c0": [{"matchAttribute": "y"}]}}',
        '{"c0/gpu": 1, "constraints": {"c1": [{"matchAttribute": "x/y"}]}}',
        '{"c0/gpu": 1, "selectors": {"c0": [{"matchAttribute": "x/y"}]}}',
        json.dumps({f"c0/{'x' * 70000}": 1}),
        "[" * 5000,
    ],
)
def test_another_annotation_is_an_error_and_the_pod_waits(text):
    request, findings = read_request(
        a_templated_pod("one", "two", annotations={keys.CLAIMED_GPUS: text})
    )

    assert [finding.code for finding in findings] == ["LW127"]
    assert request.places
    assert request.gpus == 0
