"""The ResourceClaim of a pod, and its comparison with one that exists already."""

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import a_container, a_pod

from linkwise.cluster import keys
from linkwise.cluster.allocations.device_claim import (
    ClaimError,
    ClaimOwner,
    Match,
    StoredClaim,
    claim_of,
    compare,
)
from linkwise.cluster.allocations.gpus import GPUShare
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.requests.request import ContainerRequest, Family, Request

OWNER = ClaimOwner("team", "bert-0", "uid-bert-0")
NAME = keys.CLAIM_PREFIX + "0" * 32
TERM = 7


def asked(*counts, init=()):
    """Return a request with app containers for so many GPUs, then init containers."""
    containers = [
        ContainerRequest(f"c{i}", i, is_init, False, keys.NVIDIA_GPU, gpus=gpus)
        for group, is_init in ((counts, False), (init, True))
        for i, gpus in enumerate(group)
        if gpus
    ]
    return Request(Family.WHOLE, sum(counts), containers=tuple(containers), by_claim=True)


def shares(*indices):
    return tuple(GPUShare(i, f"GPU-{i:04x}-a") for i in indices)


def claim(*indices, request=None, owner=OWNER):
    return claim_of(owner, NAME, request or asked(len(indices)), shares(*indices))


def stored(body, **status):
    return msgspec.convert({**body, "status": status}, StoredClaim)


def selected(request):
    """Return the UUIDs that a request of a claim selects."""
    (selector,) = request["exactly"]["selectors"]
    return re.findall(r"'(GPU-[^']*)'", selector["cel"]["expression"])


def test_the_claim_of_a_pod():
    assert claim(5, 4).body(TERM) == {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": NAME,
            "namespace": "team",
            "labels": {"app.kubernetes.io/managed-by": "linkwise-scorer"},
            "annotations": {"linkwise.dev/term": "7"},
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "name": "bert-0",
                    "uid": "uid-bert-0",
                    "controller": True,
                }
            ],
        },
        "spec": {
            "devices": {
                "requests": [
                    {
                        "name": "container-0",
                        "exactly": {
                            "deviceClassName": "gpu.nvidia.com",
                            "allocationMode": "ExactCount",
                            "count": 2,
                            "tolerations": [
                                {
                                    "key": "linkwise.dev/placed",
                                    "operator": "Exists",
                                    "effect": "NoSchedule",
                                }
                            ],
                            "selectors": [
                                {
                                    "cel": {
                                        "expression": "device.attributes['gpu.nvidia.com'].uuid in "
                                        "['GPU-0005-a', 'GPU-0004-a']"
                                    }
                                }
                            ],
                        },
                    }
                ]
            }
        },
    }


@given(
    counts=st.lists(st.integers(0, 4), min_size=1, max_size=4).filter(any),
    init=st.lists(st.integers(0, 1), max_size=2),
    order=st.permutations(range(16)),
)
def test_the_gpus_of_the_plan_are_divided_over_the_containers(counts, init, order):
    planned = shares(*order[: sum(counts)])
    requests = claim_of(OWNER, NAME, asked(*counts, init=init), planned).spec["devices"]["requests"]

    assert [(each["name"], each["exactly"]["count"]) for each in requests] == [
        (f"container-{i}", count) for i, count in enumerate(counts) if count
    ]
    uuids = [uuid for request in requests for uuid in selected(request)]
    assert uuids == [gpu.uuid for gpu in planned]
    assert all(len(selected(each)) == each["exactly"]["count"] for each in requests)


def test_a_claim_without_chosen_gpus_selects_none():
    (request,) = claim_of(OWNER, NAME, asked(4), None).spec["devices"]["requests"]
    assert request["exactly"]["count"] == 4
    assert "selectors" not in request["exactly"]


@pytest.mark.parametrize(
    "uuid",
    [
        pytest.param(None, id="missing"),
        pytest.param("", id="empty"),
        pytest.param("GPU-1'] || true || ''in['", id="leaves its quotes"),
        pytest.param("GPU-\\", id="escapes the quote"),
        pytest.param("GPU-1\n", id="line break"),
        pytest.param("GPU-\u0661", id="digit of another alphabet"),
        pytest.param("G" * 65, id="long"),
    ],
)
def test_a_uuid_of_other_letters_is_refused(uuid):
    with pytest.raises(ClaimError, match="GPU 3 has no valid UUID"):
        claim_of(OWNER, NAME, asked(1), (GPUShare(3, uuid),))


@pytest.mark.parametrize(
    ("request_", "indices"),
    [
        pytest.param(asked(2), (0,), id="fewer"),
        pytest.param(asked(2), (0, 1, 2), id="more"),
        pytest.param(asked(0, init=(2,)), (0, 1), id="of an init container only"),
    ],
)
def test_another_number_of_gpus_is_refused(request_, indices):
    with pytest.raises(ClaimError, match="ask for other than"):
        claim_of(OWNER, NAME, request_, shares(*indices))


def referring(*requests, init=()):
    def containers(names):
        return [
            a_container(name=f"c{i}", resources={"claims": [{"name": "linkwise", **request}]})
            for i, request in enumerate(names)
        ]

    raw = a_pod(containers=containers(requests), initContainers=containers(init))
    return msgspec.convert(raw, Pod).spec


@pytest.mark.parametrize(
    ("spec", "is_valid"),
    [
        pytest.param(referring({"request": "container-0"}), True, id="the request"),
        pytest.param(referring({"request": "container-1"}), False, id="a request it lacks"),
        pytest.param(referring({}), False, id="all requests"),
        pytest.param(
            referring({"request": "container-0"}, init=[{"request": "container-0"}]),
            True,
            id="init container with the request of an app container",
        ),
        pytest.param(
            referring({"request": "container-0"}, init=[{"request": "container-9"}]),
            False,
            id="init container with a request it lacks",
        ),
        pytest.param(
            referring({"name": "others", "request": "any"}), True, id="a claim of the user"
        ),
    ],
)
def test_each_container_refers_to_a_request_of_the_claim(spec, is_valid):
    if is_valid:
        claim(0).check_references(spec)
    else:
        with pytest.raises(ClaimError, match="refers to request"):
            claim(0).check_references(spec)


def owned_by(*owners):
    body = claim(0).body(TERM)
    return {**body, "metadata": {**body["metadata"], "ownerReferences": list(owners)}}


def configured():
    body = claim(0).body(TERM)
    devices = {**body["spec"]["devices"], "config": [{"opaque": {"driver": "gpu.nvidia.com"}}]}
    return {**body, "spec": {"devices": devices}}


STRANGER = {"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "uid-x", "controller": True}
FORMER = ClaimOwner("team", "bert-0", "uid-of-an-earlier-pod")


@pytest.mark.parametrize(
    ("found", "match"),
    [
        pytest.param(stored(claim(0).body(TERM)), Match.SAME, id="wanted"),
        pytest.param(
            stored(claim(0).body(TERM), allocation={}), Match.SAME, id="wanted and allocated"
        ),
        pytest.param(stored(claim(0).body(TERM - 1)), Match.OUTDATED, id="of the last leader"),
        pytest.param(stored(claim(0).body()), Match.OUTDATED, id="of no leader"),
        pytest.param(stored(claim(1).body(TERM)), Match.OUTDATED, id="other GPUs"),
        pytest.param(stored(configured()), Match.OUTDATED, id="with a configuration"),
        pytest.param(stored(claim(0).body(TERM + 1)), Match.FOREIGN, id="of a later leader"),
        pytest.param(
            stored(claim(1).body(TERM), allocation={}), Match.FOREIGN, id="other GPUs, allocated"
        ),
        pytest.param(
            stored(claim(1).body(TERM), reservedFor=[{"uid": "u", "name": "p"}]),
            Match.FOREIGN,
            id="other GPUs, reserved",
        ),
        pytest.param(stored(owned_by()), Match.UNOWNED, id="without owner"),
        pytest.param(stored(owned_by(), allocation={}), Match.FOREIGN, id="unowned, allocated"),
        pytest.param(stored(owned_by(STRANGER)), Match.FOREIGN, id="of another pod"),
        pytest.param(
            stored(claim(0, owner=FORMER).body(TERM)), Match.FOREIGN, id="of an earlier pod"
        ),
    ],
)
def test_a_claim_that_exists_is_compared(found, match):
    assert compare(claim(0), found, TERM) is match


@pytest.mark.parametrize("term", ["", "x", "-1", "9" * 19, "\u0661"])
def test_an_unreadable_term_is_that_of_no_leader(term):
    body = claim(0).body(TERM)
    body["metadata"]["annotations"] = {keys.TERM: term}
    assert stored(body).term == 0
