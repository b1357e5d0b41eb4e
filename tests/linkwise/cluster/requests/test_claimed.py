"""The GPU request of a pod that gets its GPUs by a ResourceClaim of Linkwise."""

import json
from typing import Any

import pytest
from msgspec import convert
from support.builders import a_claimed_pod, a_container, a_pod

from linkwise.cluster import keys
from linkwise.cluster.account.pod_usage import pod_usage
from linkwise.cluster.finding import Code
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.requests.claimed import claim_name
from linkwise.cluster.requests.request import Family
from linkwise.cluster.requests.request_reader import read_request

NAME = f"{keys.CLAIM_PREFIX}{'0f' * 16}"
GPU = {keys.NVIDIA_GPU: 1}


def read(pod: dict[str, Any]):
    return read_request(convert(pod, Pod))


def references(*requests: str | None, name: str = keys.POD_CLAIM) -> dict[str, Any]:
    """Return the resources of a container that refers to these requests of its claim."""
    claims = [{"name": name} | ({"request": each} if each else {}) for each in requests]
    return {"resources": {"claims": claims}}


def test_the_amounts_of_the_annotation_are_those_of_the_containers():
    request, findings = read(a_claimed_pod(4, 0, 2))

    assert findings == ()
    assert (request.family, request.gpus, request.resource) == (Family.WHOLE, 6, keys.NVIDIA_GPU)
    assert request.by_claim
    assert request.places
    assert request.chooses_gpus
    assert [(each.container, each.index, each.gpus) for each in request.containers] == [
        ("c0", 0, 4),
        ("c2", 2, 2),
    ]


def test_an_init_container_has_the_gpus_of_an_app_container():
    pod = a_claimed_pod(2, 2, initContainers=[a_container(name="i", **references("container-1"))])

    request, findings = read(pod)

    assert findings == ()
    assert request.gpus == 4
    assert [(each.index, each.init, each.gpus) for each in request.containers] == [
        (0, False, 2),
        (1, False, 2),
        (0, True, 2),
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param(None, "has no annotation", id="missing"),
        pytest.param("", "is no number of GPUs", id="empty"),
        pytest.param("{}", "is no number of GPUs", id="no request"),
        pytest.param("[1]", "is no number of GPUs", id="a list"),
        pytest.param('{"container-0":"1"}', "is no number of GPUs", id="a text"),
        pytest.param('{"container-0":0}', "is no number of GPUs", id="0"),
        pytest.param('{"container-0":-1}', "is no number of GPUs", id="negative"),
        pytest.param('{"container-0":1.5}', "is no number of GPUs", id="a part"),
        pytest.param('{"container-0":true}', "is no number of GPUs", id="true"),
        pytest.param('{"container-0":99999999999999999999}', "is no number", id="beyond 64 bits"),
        pytest.param("[" * 2000, "is no number of GPUs", id="nested"),
        pytest.param('{"container-0":1}' + " " * 4096, "is no number of GPUs", id="long"),
        pytest.param('{"container-1":1}', "'container-0', which has no GPUs", id="another's"),
        pytest.param('{"container-0":1,"container-1":1}', "no container refers", id="one more"),
        pytest.param('{"container-0":1,"gpus":1}', "no container refers", id="unknown request"),
    ],
)
def test_amounts_that_do_not_fit_the_references_are_an_error(text: str | None, problem: str):
    pod = a_claimed_pod(1)
    annotations = {} if text is None else {keys.CLAIMED_GPUS: text}
    pod["metadata"]["annotations"] = annotations

    request, findings = read(pod)

    (finding,) = findings
    assert finding.code is Code.CLAIM_REFERENCE
    assert problem in finding.message
    assert request.by_claim
    assert request.places


@pytest.mark.parametrize(
    ("container", "problem"),
    [
        pytest.param(references(None), "must refer to one request", id="to all requests"),
        pytest.param(references("container-0", "container-0"), "one request", id="twice"),
        pytest.param(references("container-1"), "which has no GPUs", id="to none"),
        pytest.param({}, "no container refers", id="no reference"),
        pytest.param(references("container-0", name="x"), "no container refers", id="other claim"),
    ],
)
def test_a_container_that_refers_to_another_request_is_an_error(
    container: dict[str, Any], problem: str
):
    pod = a_claimed_pod(1)
    pod["spec"]["containers"][0] = {"name": "c0", **container}

    _, findings = read(pod)

    (finding,) = findings
    assert finding.code is Code.CLAIM_REFERENCE
    assert problem in finding.message


def test_two_app_containers_with_the_same_gpus_are_an_error():
    pod = a_claimed_pod(1, 1)
    pod["spec"]["containers"][1] |= references("container-0")

    _, findings = read(pod)

    assert [each.message for each in findings] == [
        "container 'c1' must refer to request container-1 of its claim"
    ]


def test_a_sidecar_with_the_gpus_of_a_container_is_an_error():
    sidecar = a_container(name="s", restartPolicy="Always", **references("container-0"))

    _, findings = read(a_claimed_pod(1, initContainers=[sidecar]))

    assert [each.field for each in findings] == ["spec.initContainers[0].resources.claims"]
    assert "sidecar 's'" in findings[0].message


@pytest.mark.parametrize(
    "claims",
    [
        pytest.param([{"name": "gpus", "resourceClaimName": NAME}], id="other reference"),
        pytest.param(
            [
                {"name": keys.POD_CLAIM, "resourceClaimName": NAME},
                {"name": "again", "resourceClaimName": NAME},
            ],
            id="two references",
        ),
        pytest.param([{"name": keys.POD_CLAIM, "resourceClaimName": f"{NAME}0"}], id="longer"),
        pytest.param([{"name": keys.POD_CLAIM, "resourceClaimName": "lw-mine"}], id="no digits"),
        pytest.param([{"name": "x", "resourceClaimName": keys.CLAIM_PREFIX}], id="prefix alone"),
    ],
)
@pytest.mark.parametrize("limits", [{}, GPU], ids=["without GPUs", "with GPUs"])
def test_a_claim_of_linkwise_in_another_form_is_an_error(
    claims: list[dict[str, str]], limits: dict[str, int]
):
    pod = a_pod(limits, resourceClaims=claims)

    _, findings = read(pod)

    assert Code.CLAIM_REFERENCE in {each.code for each in findings}


def test_gpus_by_limits_beside_the_claim_are_an_error_and_count():
    pod = a_claimed_pod(1)
    pod["spec"]["containers"].append(a_container({keys.NVIDIA_GPU: 8}, name="more"))

    request, findings = read(pod)

    assert [each.code for each in findings] == [Code.CLAIM_REFERENCE]
    assert request.gpus == 8
    assert not request.by_claim


@pytest.mark.parametrize(
    "claims",
    [
        pytest.param([{"name": keys.POD_CLAIM, "resourceClaimName": "mine"}], id="same reference"),
        pytest.param(
            [{"name": keys.POD_CLAIM, "resourceClaimTemplateName": NAME}], id="template of the name"
        ),
    ],
)
def test_a_claim_of_the_user_is_left_alone(claims: list[dict[str, str]]):
    pod = a_pod(GPU, resourceClaims=claims)

    request, findings = read(pod)

    assert (request.family, findings) == (Family.NVIDIA, ())
    assert claim_name(convert(pod, Pod).spec) is None


def test_a_pod_with_a_node_name_or_a_number_of_cards_has_the_findings_of_others():
    pod = a_claimed_pod(1, labels={keys.GPU_COUNT: "2"}, nodeName="n")

    assert [each.code for each in read(pod)[1]] == [Code.COUNT_UNUSED, Code.NODE_NAME]


def test_gpus_of_the_record_count_without_the_annotation_of_amounts():
    record = {"v": 1, "node": "n", "gpus": [{"i": 3, "uuid": "GPU-3"}]}
    pod = a_claimed_pod(1, nodeName="n")
    pod["metadata"]["annotations"] = {keys.ALLOCATION: json.dumps(record)}

    usage = pod_usage(convert(pod, Pod))

    assert usage is not None
    assert usage.places
    assert usage.allocation is not None
    assert [gpu.i for gpu in usage.allocation.gpus.shares] == [3]
