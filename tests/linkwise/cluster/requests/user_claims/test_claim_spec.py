"""Requests of users' claims and templates are evaluated as by kube-scheduler, or not at all."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkwise.cluster.requests.user_claims.claim_spec import (
    ClaimedDevices,
    Delegated,
    asked_of,
)
from linkwise.cluster.requests.user_claims.device_class import (
    CLASSES_OF_DRIVER,
    SELECTORS_MAX,
    DeviceClass,
    classes_to_read,
)
from linkwise.cluster.requests.user_claims.matching import Constraint

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


def selecting(*expressions, **exactly):
    return a_request(selectors=[{"cel": {"expression": text}} for text in expressions], **exactly)


A100, H100 = (
    f"{ATTRIBUTES}.productName.lowerAscii().contains('{name}')" for name in ("a100", "h100")
)


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
    assert asked_of(a_spec(*requests), CLASSES) == ClaimedDevices(tuple(amounts))


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
        (
            a_spec(a_request(device_class=MIG)),
            "class 'mig.nvidia.com' has a selector of devices that are no whole GPUs",
        ),
        (
            a_spec(selecting("device.attributes.size() > 1")),
            "request 'gpu' has a selector that is not evaluated: 'size' at character 19",
        ),
        (a_spec(selecting(EVERY, "false")), "no whole GPUs"),
        (a_spec(selecting(f"{ATTRIBUTES}.type == 'mig'")), "no whole GPUs"),
        (a_spec(selecting(A100), {**selecting(H100), "name": "b"}), "different selectors"),
        (a_spec(selecting(*(f"{ATTRIBUTES}.minor != {i}" for i in range(9)))), "more than 8"),
        (a_spec(selecting(*(f"{i} == {i}" for i in range(9)))), "it has more than 8 selectors"),
        (
            a_spec(*(selecting(f"{i} == {i}", name=f"r{i}") for i in range(9))),
            "it has more than 8 selectors",
        ),
        (
            a_spec(
                selecting(*(f"{A100} || {H100} == {i} || '{'x' * 1500}' == ''" for i in range(3)))
            ),
            "4096",
        ),
        (a_spec(a_request(), a_request("nic", NIC)), "class 'nic.example.com', too"),
        (a_spec(a_request(), a_request("nic", "unknown")), "class 'unknown', too"),
        (a_spec(a_request(selectors=[{"new": {}}])), "selector"),
        (
            a_spec({"name": "gpu", "firstAvailable": [{"name": "a", "deviceClassName": GPU}]}),
            "firstAvailable",
        ),
        (
            a_spec(a_request(), constraints=[{"distinctAttribute": "x/y"}]),
            "its constraints are not evaluated",
        ),
        (a_spec(a_request(), constraints=[{"matchAttribute": "x/y", "new": 1}]), "`new`"),
        (a_spec(a_request(), constraints=[{"matchAttribute": ["x/y"]}]), "its constraints"),
        (a_spec(a_request(), constraints=[{"requests": ["gpu"]}]), "its constraints"),
        (a_spec(a_request(), constraints=[{"matchAttribute": "y"}]), "'y' has no domain"),
        (
            a_spec(a_request(), constraints=[{"matchAttribute": "x/y", "requests": ["other"]}]),
            "there is no request 'other'",
        ),
        (
            a_spec(
                *map(a_request, "abc"),
                constraints=[{"matchAttribute": "x/y", "requests": [*two]} for two in ("ab", "bc")],
            ),
            "share some of their requests",
        ),
        (
            a_spec(a_request(), constraints=[{"matchAttribute": f"x/y{i}"} for i in range(9)]),
            "more than 8",
        ),
        (
            a_spec(a_request("r" * 5000), constraints=[{"matchAttribute": "x" * 5000 + "/y"}]),
            "4096 characters",
        ),
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

    assert isinstance(found, Delegated)
    assert reason in found.reason


def test_few_classes_of_a_claim_are_read():
    names = [f"class-{i}" for i in range(9)]
    spec = a_spec({"name": "gpu", "firstAvailable": [{"deviceClassName": one} for one in names]})

    assert classes_to_read(spec) == names[:4]


@pytest.mark.parametrize(
    ("request_", "selectors"),
    [
        pytest.param(selecting(A100), (A100,), id="of the request"),
        pytest.param(
            a_request(device_class="big"),
            (f"{ATTRIBUTES}.productName == 'NVIDIA H100 80GB HBM3'",),
            id="of the class",
        ),
        pytest.param(
            selecting(H100, device_class="big"),
            (f"{ATTRIBUTES}.productName == 'NVIDIA H100 80GB HBM3'", H100),
            id="of both, the class first",
        ),
        pytest.param(selecting(A100, EVERY, A100), (A100,), id="each once"),
        pytest.param(selecting(f"{A100} && {EVERY}"), (f"{A100} && {EVERY}",), id="joined"),
        pytest.param(
            selecting(*(f"{ATTRIBUTES}.minor != {i}" for i in range(SELECTORS_MAX))),
            tuple(f"{ATTRIBUTES}.minor != {i}" for i in range(SELECTORS_MAX)),
            id="as many as there may be",
        ),
    ],
)
def test_selectors_that_not_every_gpu_satisfies_are_kept(request_, selectors):
    assert asked_of(a_spec(request_), CLASSES) == ClaimedDevices((("gpu", 1),), selectors)


@pytest.mark.parametrize(
    "expression",
    [
        EVERY,
        f'  {ATTRIBUTES}.type=="gpu"  ',
        "true",
        f"{EVERY} || {A100}",
        f"{ATTRIBUTES}.type != 'mig'",
        "device.driver.endsWith('nvidia.com')",
        f"has({ATTRIBUTES}.type)",
    ],
)
def test_a_selector_that_every_gpu_satisfies_is_left_out(expression):
    assert asked_of(a_spec(selecting(expression)), CLASSES) == ClaimedDevices((("gpu", 1),))


@pytest.mark.parametrize(
    "expression",
    [
        f"has({ATTRIBUTES}.new)",
        f"!has({ATTRIBUTES}.new)",
        f"'new' in {ATTRIBUTES}",
        "'other.example' in device.attributes",
        "!has(device.attributes['other.example'].new)",
        f"{ATTRIBUTES}.type == 'gpu' && {ATTRIBUTES}.minor < 4",
    ],
)
def test_nothing_is_assumed_of_attributes_that_a_gpu_may_have(expression):
    found = asked_of(a_spec(selecting(expression)), CLASSES)

    assert found == ClaimedDevices((("gpu", 1),), (expression,))


ROOT = "resource.kubernetes.io/pcieRoot"


@pytest.mark.parametrize(
    ("constraints", "found"),
    [
        pytest.param([{"matchAttribute": ROOT}], [(ROOT, None)], id="of all requests"),
        pytest.param(
            [{"matchAttribute": ROOT, "requests": []}], [(ROOT, None)], id="an empty list"
        ),
        pytest.param(
            [{"matchAttribute": ROOT, "requests": ["c", "a", "b"]}], [(ROOT, None)], id="all named"
        ),
        pytest.param(
            [{"matchAttribute": ROOT, "requests": ["b", "a"]}, {"matchAttribute": "x/y"}],
            [(ROOT, ("a", "b")), ("x/y", None)],
            id="of some requests, and of all",
        ),
        pytest.param([{"matchAttribute": ROOT}] * 2, [(ROOT, None)], id="each once"),
    ],
)
def test_constraints_are_read_in_one_form(constraints, found):
    asked = asked_of(a_spec(*map(a_request, "abc"), constraints=constraints), CLASSES)

    assert [(one.match_attribute, one.requests) for one in asked.constraints] == found


def test_the_class_of_nvidias_driver_selects_every_gpu():
    assert asked_of(a_spec(a_request()), CLASSES_OF_DRIVER) == ClaimedDevices((("gpu", 1),))


def test_the_order_of_requests_makes_no_difference():
    first = ClaimedDevices((("a", 1), ("b", 2)))

    assert first.is_same(ClaimedDevices((("b", 2), ("a", 1))))
    assert not first.is_same(ClaimedDevices((("a", 2), ("b", 1))))
    assert not first.is_same(ClaimedDevices(first.amounts, (A100,)))
    assert not first.is_same(ClaimedDevices(first.amounts, constraints=(Constraint(ROOT),)))


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

    assert found is None or isinstance(found, (ClaimedDevices, Delegated))
