"""What claims and templates of users ask for: only what is evaluated as kube-scheduler does."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import a_pod

from cluster import keys
from cluster.objects.pod import Pod
from cluster.requests.request import Family, read_request
from cluster.requests.template_claim import (
    DeviceClass,
    LeftToScheduler,
    TemplateClaim,
    asked_of,
    claim_from_templates,
    classes_to_read,
    read_template_claim,
    selects_every_gpu,
    template_names,
)

GPU, MIG, NIC = "gpu.nvidia.com", "mig.nvidia.com", "nic.example.com"
ATTRIBUTES = "device.attributes['gpu.nvidia.com']"
EVERY = f"device.driver == 'gpu.nvidia.com' && {ATTRIBUTES}.type == 'gpu'"


def a_class(name, *expressions, **spec):
    selectors = [{"cel": {"expression": text}} for text in expressions]
    raw = {"metadata": {"name": name}, "spec": {"selectors": selectors, **spec}}
    return msgspec.convert(raw, DeviceClass)


CLASSES = {
    GPU: a_class(GPU, EVERY),
    MIG: a_class(MIG, f"device.driver == 'gpu.nvidia.com' && {ATTRIBUTES}.type == 'mig'"),
    NIC: a_class(NIC, "device.driver == 'nic.example.com'"),
    "any": a_class("any"),
    "by-driver": a_class("by-driver", 'device.driver == "gpu.nvidia.com"'),
    "big": a_class("big", EVERY, f"{ATTRIBUTES}.productName == 'NVIDIA H100 80GB HBM3'"),
}


def a_request(name="gpu", device_class=GPU, **exactly):
    return {"name": name, "exactly": {"deviceClassName": device_class, **exactly}}


def a_spec(*requests, **devices):
    return {"devices": {"requests": list(requests), **devices}}


def a_templated_pod(*templates, gates=(keys.GANG,), annotations=None, **spec):
    claims = [
        {"name": f"c{i}", "resourceClaimTemplateName": one} for i, one in enumerate(templates)
    ]
    pod = a_pod({}, annotations=annotations or {}, resourceClaims=claims, **spec)
    pod["spec"]["schedulingGates"] = [{"name": gate} for gate in gates]
    pod["spec"]["containers"][0]["resources"] = {"claims": [{"name": "c0"}]}
    return msgspec.convert(pod, Pod)


@pytest.mark.parametrize(
    ("requests", "amounts"),
    [
        pytest.param([a_request()], [("gpu", 1)], id="one, by default"),
        pytest.param(
            [a_request(allocationMode="ExactCount", count=4)], [("gpu", 4)], id="a number"
        ),
        pytest.param(
            [a_request("a"), a_request("b", count=2)], [("a", 1), ("b", 2)], id="two requests"
        ),
        pytest.param(
            [a_request(selectors=[{"cel": {"expression": EVERY}}])],
            [("gpu", 1)],
            id="a selector of every GPU",
        ),
        pytest.param([a_request(device_class="by-driver")], [("gpu", 1)], id="another class"),
        pytest.param(
            [a_request(tolerations=[{"key": "maintenance", "operator": "Exists"}])],
            [("gpu", 1)],
            id="tolerations",
        ),
    ],
)
def test_whole_gpus_are_evaluated(requests, amounts):
    assert asked_of(a_spec(*requests), CLASSES) == tuple(amounts)


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({}, id="nothing"),
        pytest.param(a_spec(a_request(device_class=NIC)), id="other devices"),
        pytest.param(a_spec(a_request(device_class="unknown")), id="a class that does not exist"),
        pytest.param(a_spec(a_request(device_class="any")), id="a class without selectors"),
        pytest.param({"devices": {"requests": [1, {"exactly": 2}]}}, id="another shape"),
    ],
)
def test_claims_without_gpus_are_not_concerned(spec):
    assert asked_of(spec, CLASSES) is None


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (a_spec(a_request(adminAccess=True)), "adminAccess"),
        (a_spec(a_request(capacity={"requests": {"memory": "1Gi"}})), "capacity"),
        (a_spec(a_request(allocationMode="All")), "allocationMode"),
        (a_spec(a_request(count=33)), "1 to 32"),
        (a_spec(a_request("a", count=32), a_request("b")), "1 to 32"),
        (a_spec(a_request(count=0)), "allocationMode"),
        (a_spec(a_request(device_class=MIG)), "selectors of class 'mig.nvidia.com'"),
        (a_spec(a_request(device_class="big")), "selectors of class 'big'"),
        (a_spec(a_request(), a_request("nic", NIC)), "class 'nic.example.com', too"),
        (a_spec(a_request(), a_request("nic", "unknown")), "class 'unknown', too"),
        (
            a_spec(a_request(selectors=[{"cel": {"expression": f"{ATTRIBUTES}.numaNode == 0"}}])),
            "selector",
        ),
        (a_spec(a_request(selectors=[{"new": {}}])), "selector"),
        (
            a_spec({"name": "gpu", "firstAvailable": [{"name": "a", "deviceClassName": GPU}]}),
            "firstAvailable",
        ),
        (a_spec(a_request(), constraints=[{"matchAttribute": "x/y"}]), "constraints"),
        (a_spec(a_request(derivedAttribute="new")), "derivedAttribute"),
        ({**a_spec(a_request()), "later": 1}, "later"),
        (a_spec(a_request(count="two")), "not evaluated"),
        (
            a_spec(*(a_request(f"r{i}", name) for i, name in enumerate([GPU, *"abcd"]))),
            "class 'a', too",
        ),
    ],
)
def test_what_is_not_evaluated_is_left_to_the_scheduler_with_the_reason(spec, reason):
    found = asked_of(spec, CLASSES)

    assert isinstance(found, LeftToScheduler)
    assert reason in found.reason


def test_few_classes_of_a_claim_are_read():
    names = [f"class-{i}" for i in range(9)]
    spec = a_spec({"name": "gpu", "firstAvailable": [{"deviceClassName": one} for one in names]})

    assert classes_to_read(spec) == names[:4]


@pytest.mark.parametrize(
    ("expression", "is_every"),
    [
        (EVERY, True),
        (f'  {ATTRIBUTES}.type=="gpu"  ', True),
        ("", False),
        ("true", False),
        (f"!({EVERY})", False),
        (f"{EVERY} || false", False),
        (f"{EVERY} && {ATTRIBUTES}.memory > 1", False),
        ("device.driver == 'gpu.nvidia.com.example.com'", False),
        ("device.driver == 'gpuXnvidia.com'", False),
        ("device.driver != 'gpu.nvidia.com'", False),
        ("device.driver == 'gpu.nvidia.com' &&", False),
    ],
)
def test_expressions_that_hold_for_every_gpu(expression, is_every):
    assert selects_every_gpu(expression) is is_every


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["devices", "requests", "exactly", "name", "deviceClassName", "count", "x"]
                ),
                inner | st.sampled_from([GPU, NIC]),
                max_size=4,
            )
        ),
    )
)
def test_any_specification_has_an_answer(part):
    found = asked_of({"devices": part}, CLASSES)

    assert found is None or isinstance(found, (tuple, LeftToScheduler))


# ---- Pods.

ONE, TWO = (("gpu", 1),), (("a", 1), ("b", 1))
LEFT = LeftToScheduler("request 'x' has adminAccess")


@pytest.mark.parametrize(
    ("templates", "fields", "found"),
    [
        (["one"], {}, TemplateClaim("c0", ONE)),
        (["nic", "two"], {}, TemplateClaim("c1", TWO)),
        (["nic"], {}, None),
        (["unknown"], {}, None),
        (["one", "two"], {}, "several"),
        (["one", "admin"], {}, "template admin: request 'x' has adminAccess"),
    ],
)
def test_a_pod_gets_gpus_by_one_template(templates, fields, found):
    asked = {"one": ONE, "two": TWO, "nic": None, "admin": LEFT}
    result = claim_from_templates(a_templated_pod(*templates, **fields).spec, asked)

    if isinstance(found, str):
        assert isinstance(result, LeftToScheduler)
        assert found in result.reason
    else:
        assert result == found


def test_a_claim_by_name_or_a_resource_beside_it_leaves_the_pod_to_the_scheduler():
    pod = a_pod(
        {keys.NVIDIA_GPU: 1}, resourceClaims=[{"name": "g", "resourceClaimTemplateName": "one"}]
    )
    beside = claim_from_templates(msgspec.convert(pod, Pod).spec, {"one": ONE})
    claims = [
        {"name": "g", "resourceClaimTemplateName": "one"},
        {"name": "h", "resourceClaimName": "shared"},
    ]
    named = claim_from_templates(
        msgspec.convert(a_pod({}, resourceClaims=claims), Pod).spec, {"one": ONE}
    )

    assert isinstance(beside, LeftToScheduler)
    assert isinstance(named, LeftToScheduler)
    assert "nvidia.com/gpu, too" in beside.reason
    assert "claim 'shared'" in named.reason


def annotated(claim, **fields):
    return a_templated_pod(
        "one", "two", annotations={keys.CLAIMED_GPUS: claim.annotation}, **fields
    )


@pytest.mark.parametrize("claim", [TemplateClaim("c0", ONE), TemplateClaim("c1", TWO)])
def test_what_admission_writes_is_read_again(claim):
    pod = annotated(claim)

    assert template_names(pod.spec) == {"one", "two"}
    assert read_template_claim(pod) == (claim, ())
    request, findings = read_request(pod)
    assert not findings
    assert (request.family, request.gpus) == (Family.WHOLE, claim.gpus)
    assert request.by_claim
    assert request.places
    assert request.template == claim


def test_without_gate_and_record_the_annotation_means_nothing():
    claim = TemplateClaim("c0", ONE)

    assert read_request(annotated(claim, gates=()))[0].family is None
    recorded = annotated(claim, gates=())
    recorded.metadata.annotations[keys.ALLOCATION] = "{}"
    assert read_request(recorded)[0].template == claim


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        '{"c0/gpu": 0}',
        '{"c0/gpu": 33}',
        '{"c0/gpu": "1"}',
        '{"c0/gpu": 1, "c1/gpu": 1}',
        '{"c9/gpu": 1}',
        '{"container-0": 1}',
        json.dumps({f"c0/{'x' * 5000}": 1}),
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
