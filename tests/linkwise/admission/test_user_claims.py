"""Pods that get their GPUs by the claims of their own templates."""

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from support.admission import GATE, a_snapshot, patched
from support.builders import a_node, a_pod

from linkwise.admission.decide.admit import admit
from linkwise.admission.decide.outcome import Outcome, Verdict
from linkwise.cluster import keys
from linkwise.cluster.nodes.capacity import Capacity
from linkwise.cluster.nodes.gpu_kinds import decode_kinds
from linkwise.cluster.nodes.node import DevicePool
from linkwise.cluster.nodes.node_capacity import capacity_of
from linkwise.cluster.objects.pod import NewPod, Pod
from linkwise.cluster.requests.request_reader import read_request
from linkwise.cluster.requests.user_claims.claim_spec import Asked, ClaimedDevices, Delegated
from linkwise.cluster.requests.user_claims.pod_claims import CLAIM, TEMPLATE, ClaimSource

AUTO = a_snapshot("placement: {templates: auto}")
TWO: dict[str, Asked] = {"two-gpus": ClaimedDevices((("gpu", 2),))}
"""By name of the template."""
NODE = a_node("claims-0", labels={keys.NODE_MODE: "topology", "kind": "claims"}, resources={})
NODES = capacity_of([replace(NODE, pool=DevicePool("claims-0", ("gpu-0",) * 8))])
MARK = {keys.GANG: "bert", keys.GANG_SIZE: "2"}


def a_templated_pod(*templates: str, **fields: Any) -> dict[str, Any]:
    references = [
        {"name": f"c{i}", "resourceClaimTemplateName": one} for i, one in enumerate(templates)
    ]
    pod = a_pod({}, resourceClaims=references, **fields)
    pod["spec"]["containers"][0]["resources"] = {"claims": [{"name": "c0"}]}
    return pod


def outcome(
    pod: dict[str, Any],
    templates: dict[str, Asked],
    *,
    claims: dict[str, Asked] | None = None,
    policy=AUTO,
    capacity: Capacity = NODES,
) -> Outcome:
    sources: dict[ClaimSource, Asked] = {
        ClaimSource(TEMPLATE, name): asked for name, asked in templates.items()
    }
    sources |= {ClaimSource(CLAIM, name): asked for name, asked in (claims or {}).items()}
    return admit(
        msgspec.convert(pod, NewPod),
        namespace="default",
        namespace_labels={},
        policy=policy,
        capacity=capacity,
        asked=sources,
    )


def test_a_single_pod_is_gated_and_its_references_stay():
    pod = a_templated_pod("two-gpus")
    result = outcome(pod, TWO)
    after = patched(pod, result)

    assert result.verdict is Verdict.ALLOWED
    assert not result.findings
    assert after["metadata"]["annotations"] == {keys.CLAIMED_GPUS: '{"c0/gpu":2}'}
    assert after["spec"]["schedulingGates"] == [GATE]
    assert after["spec"]["resourceClaims"] == pod["spec"]["resourceClaims"]
    assert after["spec"]["containers"] == pod["spec"]["containers"]
    request, findings = read_request(msgspec.convert(after, Pod))
    assert not findings
    assert (request.gpus, request.by_claim) == (2, True)
    terms = after["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]["nodeSelectorTerms"]
    assert terms[0]["matchExpressions"][0]["key"] == keys.NODE_MODE


def test_a_second_admission_adds_nothing():
    pod = a_templated_pod("two-gpus", annotations=MARK)
    after = patched(pod, outcome(pod, TWO))

    assert outcome(after, TWO).patch == ()


def test_amounts_of_a_user_are_replaced():
    pod = a_templated_pod("two-gpus", annotations={keys.CLAIMED_GPUS: '{"c0/gpu":1}'})
    result = outcome(pod, TWO)

    assert [finding.code for finding in result.findings] == ["LW115"]
    after = patched(pod, result)
    assert after["metadata"]["annotations"] == {keys.CLAIMED_GPUS: '{"c0/gpu":2}'}


def test_a_gang_by_its_owner_is_marked():
    pod = a_templated_pod("two-gpus")
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "MPIJob", "name": "train", "uid": "u"}
    pod["metadata"]["ownerReferences"] = [{**owner, "controller": True}]

    after = patched(pod, outcome(pod, TWO))

    assert after["metadata"]["annotations"][keys.GANG] == "train"


@pytest.mark.parametrize(
    ("templates", "mark", "text"),
    [
        ({"two-gpus": Delegated("request 'gpu' has adminAccess")}, {}, "adminAccess"),
        ({"two-gpus": Delegated("request 'gpu' has adminAccess")}, MARK, "adminAccess"),
        ({"two-gpus": None}, MARK, "does not place gang bert as a whole"),
    ],
)
def test_what_is_left_to_the_scheduler_is_a_finding(templates, mark, text):
    result = outcome(a_templated_pod("two-gpus", annotations=mark), templates)

    assert [finding.code for finding in result.findings] == ["LW125"]
    assert text in result.findings[0].message
    after = patched(a_templated_pod("two-gpus", annotations=mark), result)
    delegated = after["metadata"].get("annotations", {}).get(keys.LEFT_TO_SCHEDULER)
    what = templates["two-gpus"]
    assert delegated == (f"template two-gpus: {what.reason}" if what else None)
    assert not outcome(after, templates).patch
    assert not any(one.path.startswith("/spec/schedulingGates") for one in result.patch)


def test_claims_of_other_drivers_beside_it_stay_as_they_are():
    pod = a_templated_pod("two-gpus", "channel", annotations=MARK)
    result = outcome(pod, {**TWO, "channel": None})
    after = patched(pod, result)

    assert after["spec"]["resourceClaims"] == pod["spec"]["resourceClaims"]
    assert after["metadata"]["annotations"][keys.CLAIMED_GPUS] == '{"c0/gpu":2}'
    assert [finding.code for finding in result.findings] == ["LW125"]


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        pytest.param({}, {"policy": a_snapshot("")}, id="off by default"),
        pytest.param({}, {"capacity": Capacity()}, id="no claims node"),
        pytest.param({"labels": {keys.CLAIMS: "false"}}, {}, id="the label says no"),
        pytest.param({"nodeName": "claims-0"}, {}, id="bound by hand"),
        pytest.param({"schedulerName": "other"}, {}, id="another scheduler"),
        pytest.param({"nodeSelector": {"kind": "other"}}, {}, id="no such node"),
        pytest.param({"nodeSelector": {keys.NODE_MODE: "default"}}, {}, id="another mode"),
    ],
)
def test_such_pods_are_left_alone(fields, options):
    result = outcome(a_templated_pod("two-gpus", **fields), TWO, **options)

    assert result.patch == ()
    assert not result.findings


def test_a_pod_with_the_label_has_no_word_about_what_would_be_left():
    delegated: dict[str, Asked] = {"two-gpus": Delegated("request 'gpu' has adminAccess")}
    result = outcome(a_templated_pod("two-gpus", labels={keys.CLAIMS: "false"}), delegated)

    assert result.patch == ()
    assert not result.findings


def naming(*names: str, **fields: Any) -> dict[str, Any]:
    references = [{"name": f"c{i}", "resourceClaimName": one} for i, one in enumerate(names)]
    pod = a_pod({}, resourceClaims=references, **fields)
    pod["spec"]["containers"][0]["resources"] = {"claims": [{"name": "c0"}]}
    return pod


def test_a_pod_that_names_a_claim_is_gated_alone_also_where_its_owner_makes_gangs():
    """The pods of one owner share the claim."""
    pod = naming("mine")
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "MPIJob", "name": "train", "uid": "u"}
    pod["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    result = outcome(pod, {}, claims={"mine": TWO["two-gpus"]})
    after = patched(pod, result)

    assert not result.findings
    assert after["metadata"]["annotations"] == {keys.CLAIMED_GPUS: '{"c0/gpu":2}'}
    assert after["spec"]["schedulingGates"] == [GATE]
    assert after["spec"]["resourceClaims"] == pod["spec"]["resourceClaims"]
    assert read_request(msgspec.convert(after, Pod))[0].gpus == 2


def test_a_claim_of_another_device_by_name_leaves_a_gang_by_its_owner_a_gang():
    pod = a_templated_pod("two-gpus")
    pod["spec"]["resourceClaims"].append({"name": "nic", "resourceClaimName": "shared-nic"})
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "MPIJob", "name": "train", "uid": "u"}
    pod["metadata"]["ownerReferences"] = [{**owner, "controller": True}]

    after = patched(pod, outcome(pod, TWO, claims={"shared-nic": None}))

    assert after["metadata"]["annotations"][keys.GANG] == "train"


def test_a_pod_that_names_a_claim_which_is_not_evaluated_is_left_to_the_scheduler():
    delegated: dict[str, Asked] = {"mine": Delegated("request 'gpu' has adminAccess")}
    result = outcome(naming("mine"), {}, claims=delegated)

    assert [finding.code for finding in result.findings] == ["LW125"]
    after = patched(naming("mine"), result)
    assert after["metadata"]["annotations"] == {
        keys.LEFT_TO_SCHEDULER: "claim mine: request 'gpu' has adminAccess"
    }
    assert not after["spec"].get("schedulingGates")


def test_selectors_are_written_beside_the_amounts():
    chosen = "device.attributes['gpu.nvidia.com'].productName == 'NVIDIA H100'"
    templates = {"two-gpus": ClaimedDevices((("gpu", 2),), (chosen,))}
    pod = a_templated_pod("two-gpus", annotations=MARK)
    after = patched(pod, outcome(pod, templates))

    assert json.loads(after["metadata"]["annotations"][keys.CLAIMED_GPUS]) == {
        "c0/gpu": 2,
        "selectors": [chosen],
    }
    request, findings = read_request(msgspec.convert(after, Pod))
    assert not findings
    assert request.user_claims.claims == (("c0", templates["two-gpus"]),)
    assert outcome(after, templates).patch == ()


def test_two_claims_of_one_template_are_written():
    pod = a_templated_pod("two-gpus", "two-gpus", annotations=MARK)
    result = outcome(pod, TWO)
    after = patched(pod, result)

    assert not result.findings
    assert after["metadata"]["annotations"][keys.CLAIMED_GPUS] == '{"c0/gpu":2,"c1/gpu":2}'
    assert read_request(msgspec.convert(after, Pod))[0].gpus == 4


def test_selectors_that_no_claims_node_satisfies_are_left_to_the_scheduler():
    kinds = decode_kinds('[{"attributes": {"productName": {"string": "Tesla T4"}}}]')
    other = {
        name: ClaimedDevices(
            (("gpu", 1),), (f"device.attributes['gpu.nvidia.com'].productName == '{name}'",)
        )
        for name in ("NVIDIA H100", "Tesla T4")
    }
    capacity = capacity_of([NODE], 8, kinds)

    left = outcome(a_templated_pod("NVIDIA H100"), other, capacity=capacity)
    ours = outcome(a_templated_pod("Tesla T4"), other, capacity=capacity)

    assert "no node of Linkwise has GPUs that satisfy the selectors" in left.findings[0].message
    assert not any(one.path.startswith("/spec/schedulingGates") for one in left.patch)
    assert any(one.path.startswith("/spec/schedulingGates") for one in ours.patch)


def test_more_gpus_than_a_node_has_are_left_alone():
    assert outcome(a_templated_pod("nine"), {"nine": ClaimedDevices((("gpu", 9),))}).patch == ()
