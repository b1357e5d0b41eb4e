from dataclasses import replace

import msgspec
import pytest
from support.admission import (
    ARENA,
    COMPUTE,
    DRIVER_PROFILE,
    EXACT,
    GATE,
    NO_CAPACITY,
    SLICED,
    TIME_SLICING,
    a_snapshot,
    admitted,
    codes,
    env_of,
    outcome_of,
    patched,
    requirements_of,
)
from support.builders import TIED, TIMESLICED, a_container, a_pod

from linkwise.admission.decide.outcome import Verdict
from linkwise.cluster import container_variables, keys
from linkwise.cluster.finding import Code, Severity
from linkwise.cluster.nodes.capacity import Capacity
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.requests.request_reader import read_request

# ---- What the protocols' own documents show.

MODEL_AND_DRIVER = {
    keys.COMPUTE_CLASS: "gpu",
    keys.MODEL_SERIES: "T4",
    keys.DRIVER_VERSION: "535.161.08",
}


@pytest.mark.parametrize(
    ("pod", "policy", "denials"),
    [
        pytest.param(a_pod({**COMPUTE, keys.GPU_CORE: 20}), "", [], id="compute-20"),
        pytest.param(a_pod({**COMPUTE, keys.GPU_CORE: 22}), "", [Code.CORE_STEP], id="compute-22"),
        pytest.param(a_pod({keys.GPU_MEM: 5}), "", [], id="memory-only"),
        pytest.param(
            a_pod({keys.GPU_CORE: 20}), "", [Code.CORE_ALONE], id="compute-without-memory"
        ),
        pytest.param(
            a_pod({keys.GPU_MEM: 2}, {keys.GPU_WHOLE: 1}),
            "",
            [Code.TWO_FAMILIES],
            id="two-families",
        ),
        pytest.param(
            a_pod({keys.NVIDIA_GPU: 1}, labels=MODEL_AND_DRIVER), "", [], id="model-and-driver"
        ),
        pytest.param(
            a_pod(
                {keys.NVIDIA_GPU: 1},
                labels={**MODEL_AND_DRIVER, keys.MODEL_SERIES: "example-model"},
            ),
            "",
            [Code.MODEL],
            id="example-model",
        ),
        pytest.param(
            a_pod({keys.NVIDIA_GPU: 1}, labels={**MODEL_AND_DRIVER, keys.DRIVER_VERSION: "1.0"}),
            "",
            [Code.DRIVER],
            id="unknown-driver",
        ),
        pytest.param(a_pod({keys.NVIDIA_GPU_SHARED: 1}), TIME_SLICING, [], id="one-replica"),
        pytest.param(
            a_pod({keys.NVIDIA_GPU_SHARED: 2}),
            TIME_SLICING,
            [Code.SHARED_ONE],
            id="two-replicas-of-a-gpu",
        ),
        pytest.param(
            a_pod({keys.GPU_WHOLE: 1}, nodeName="n1"), "", [Code.NODE_NAME], id="node-name"
        ),
    ],
)
def test_examples_of_the_protocol_are_allowed_or_denied(pod, policy, denials):
    outcome = outcome_of(pod, a_snapshot(policy))

    assert codes(outcome, Severity.ERROR) == denials
    assert outcome.verdict is (Verdict.DENIED if denials else Verdict.ALLOWED)


def test_denied_pod_has_no_patch():
    outcome = outcome_of(
        a_pod({keys.GPU_CORE: 22}, annotations={keys.TERM: "1"}), a_snapshot("", [DRIVER_PROFILE])
    )

    assert outcome.verdict is Verdict.DENIED
    assert outcome.patch == ()


def test_all_problems_are_in_one_response():
    env = [{"name": container_variables.ENV_VISIBLE_DEVICES, "value": "all"}]
    pod = a_pod(
        labels={keys.COMPUTE_CLASS: "fast", keys.MODEL_SERIES: "T5"},
        annotations={keys.ALLOCATION: "{}"},
        nodeName="n1",
        containers=[a_container({keys.GPU_MEM: "1.5", keys.GPU_CORE: 22}, env=env)],
    )

    outcome = outcome_of(pod, a_snapshot("visibleDevices: deny"))

    assert set(codes(outcome)) == {
        Code.MEMORY_WHOLE,
        Code.CORE_STEP,
        Code.NODE_NAME,
        Code.CLASS,
        Code.MODEL,
        Code.VISIBLE_DEVICES,
        Code.RECORD_REMOVED,
    }


def test_gpushare_pod_sees_only_its_card():
    env = [{"name": container_variables.ENV_VISIBLE_DEVICES, "value": "all"}]
    pod = a_pod(containers=[a_container({keys.GPU_MEM: 5}, env=env)])

    outcome = outcome_of(pod)

    assert codes(outcome) == [Code.VISIBLE_DEVICES]
    reference = env_of(patched(pod, outcome))[container_variables.ENV_VISIBLE_DEVICES]
    assert reference["fieldRef"]["fieldPath"] == f"metadata.annotations['{keys.VISIBLE_DEVICES}']"
    assert len(outcome.warnings) == 1


# ---- Scope.


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(a_pod({"cpu": 1}), id="no-gpu"),
        pytest.param(a_pod(labels={"app": "web"}), id="other-labels"),
    ],
)
def test_pods_out_of_scope_are_unchanged(pod):
    outcome = outcome_of(pod, a_snapshot("", [{"name": "all", "effect": {"labels": {"a": "b"}}}]))

    assert outcome.verdict is Verdict.SKIPPED
    assert outcome.patch == ()
    assert outcome.findings == ()


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(a_pod(labels={keys.COMPUTE_CLASS: "performance"}), id="acs-label"),
        pytest.param(a_pod(labels=ARENA), id="gang-mark"),
        pytest.param(
            a_pod(containers=[{"name": "c", "resources": {"requests": {keys.GPU_MEM: 1}}}]),
            id="request-alone",
        ),
        pytest.param(
            a_pod(initContainers=[a_container({keys.NVIDIA_GPU: 1})]), id="init-container"
        ),
    ],
)
def test_pods_in_scope_are_handled(pod):
    assert outcome_of(pod).verdict is not Verdict.SKIPPED


# ---- GPUs that NVIDIA's plugin shares.


def test_request_is_renamed_to_the_resource_of_the_nodes():
    pod = a_pod({keys.NVIDIA_GPU: 1})

    outcome = outcome_of(pod, a_snapshot(TIME_SLICING + "  rename: true"), capacity=SLICED)

    after = patched(pod, outcome)
    assert after["spec"]["containers"][0]["resources"]["limits"] == {keys.NVIDIA_GPU_SHARED: 1}
    assert requirements_of(after) == {keys.NODE_MODE: ["timeslice"]}
    assert env_of(after)[container_variables.ENV_REPLICAS] == "4"
    assert env_of(after)[container_variables.ENV_MEMORY_FRACTION] == "0.225"
    assert [finding.field for finding in outcome.findings] == [
        f"spec.containers[0].resources.limits[{keys.NVIDIA_GPU}]"
    ]


@pytest.mark.parametrize(
    ("policy", "variables"),
    [
        pytest.param("", {}, id="empty"),
        pytest.param(TIME_SLICING.replace("ByDefault: true", "ByDefault: false"), {}, id="kept"),
        pytest.param(
            TIME_SLICING,
            {
                container_variables.ENV_REPLICAS: "4",
                container_variables.ENV_MEMORY_FRACTION: "0.225",
            },
            id="renamed",
        ),
    ],
)
def test_variables_of_replicas_come_only_from_groups_of_the_policy(policy, variables):
    pod = a_pod({keys.NVIDIA_GPU_SHARED: 1})
    env = env_of(admitted(pod, a_snapshot(policy), capacity=SLICED))

    parts = (container_variables.ENV_REPLICAS, container_variables.ENV_MEMORY_FRACTION)
    assert {name: env[name] for name in parts if name in env} == variables
    assert container_variables.ENV_VISIBLE_DEVICES in env


def test_pod_of_nvidias_plugin_gets_only_variables_of_its_replicas():
    policy = a_snapshot(TIME_SLICING.replace("renameByDefault: true", "renameByDefault: false"))

    pod = admitted(a_pod({keys.NVIDIA_GPU: 1}, {"cpu": 1}), policy)

    assert env_of(pod).keys() == {
        container_variables.ENV_REPLICAS,
        container_variables.ENV_MEMORY_FRACTION,
    }
    assert env_of(pod, 1) == {}
    assert "schedulingGates" not in pod["spec"]


TIMESLICE_EXCLUDED = str({"key": keys.NODE_MODE, "operator": "NotIn", "values": ["timeslice"]})


@pytest.mark.parametrize(
    ("policy", "capacity", "spec", "placed"),
    [
        pytest.param("", SLICED, {}, True, id="a-node-of-ours-offers-them"),
        pytest.param("", replace(SLICED, replicas=0), {}, False, id="only-nvidias-plugin-does"),
        pytest.param("", NO_CAPACITY, {}, False, id="no-node-is-known"),
        pytest.param("placement: {nvidia: off}", SLICED, {}, False, id="off"),
        pytest.param("placement: {nvidia: off}", SLICED, TIMESLICED, False, id="off-and-tied"),
        pytest.param("", NO_CAPACITY, TIMESLICED, True, id="tied-by-its-author"),
        pytest.param(
            "", SLICED, {"nodeSelector": {keys.NODE_MODE: "default"}}, False, id="tied-elsewhere"
        ),
    ],
)
def test_linkwise_places_replicas_if_a_node_of_mode_timeslice_offers_them(
    policy, capacity, spec, placed
):
    pod = a_pod({keys.NVIDIA_GPU_SHARED: 1}, **spec)

    outcome = outcome_of(pod, a_snapshot(policy), capacity=capacity)

    assert outcome.verdict is Verdict.ALLOWED
    assert outcome.request.places is placed
    after = patched(pod, outcome)
    assert after["spec"].get("schedulingGates", []) == [GATE] * placed
    assert placed or TIMESLICE_EXCLUDED in str(after) or spec
    read = read_request(msgspec.convert(after, Pod))[0]
    assert read.places is placed or spec


TOPOLOGY_EXCLUDED = str({"key": keys.NODE_MODE, "operator": "NotIn", "values": ["topology"]})
OFF = "placement: {nvidia: off}"


@pytest.mark.parametrize(
    ("policy", "capacity", "spec", "placed", "excluded"),
    [
        pytest.param("", EXACT, {}, True, False, id="a-node-of-ours-offers-them"),
        pytest.param("", SLICED, {}, False, False, id="only-nvidias-plugin-does"),
        pytest.param("", NO_CAPACITY, {}, False, False, id="no-node-is-known"),
        pytest.param(OFF, EXACT, {}, False, True, id="off"),
        pytest.param(OFF, SLICED, {}, False, False, id="off-without-such-a-node"),
        pytest.param(OFF, EXACT, TIED, False, False, id="off-and-tied"),
        pytest.param("", NO_CAPACITY, TIED, True, False, id="tied-by-its-author"),
        pytest.param(
            "", EXACT, {"nodeSelector": {keys.NODE_MODE: "default"}}, False, False, id="elsewhere"
        ),
        pytest.param(
            "", EXACT, {"nodeSelector": {keys.MODE: "default"}}, False, True, id="by our label"
        ),
        pytest.param(
            "", EXACT, {"nodeSelector": {"zone": "a"}}, False, True, id="excludes-the-nodes-of-ours"
        ),
        pytest.param("", EXACT, {"nodeName": "plain-0"}, False, True, id="node-name"),
        pytest.param("", EXACT, {"schedulerName": "volcano"}, False, True, id="other-scheduler"),
    ],
)
def test_linkwise_places_nvidia_gpus_if_a_node_of_mode_topology_offers_them(
    policy, capacity, spec, placed, excluded
):
    pod = a_pod({keys.NVIDIA_GPU: 1}, **spec)

    outcome = outcome_of(pod, a_snapshot(policy), capacity=capacity)

    assert outcome.verdict is Verdict.ALLOWED
    assert outcome.request.places is placed
    after = patched(pod, outcome)
    assert after["spec"].get("schedulingGates", []) == [GATE] * placed
    assert (TOPOLOGY_EXCLUDED in str(after)) is excluded
    assert (container_variables.ENV_VISIBLE_DEVICES in env_of(after)) is placed
    assert outcome_of(after, a_snapshot(policy), capacity=capacity).patch == ()
    assert read_request(msgspec.convert(after, Pod))[0].places is placed or spec is TIED


def test_nvidia_gpus_that_no_node_of_ours_has_are_left_to_the_plugin():
    outcome = outcome_of(a_pod({keys.NVIDIA_GPU: 9}), capacity=EXACT)

    assert not outcome.request.places
    assert Code.CAPACITY in codes(outcome)


def test_a_gang_of_nvidia_gpus_is_placed_as_a_whole_on_nodes_of_ours():
    pod = a_pod({keys.NVIDIA_GPU: 1}, labels=ARENA)

    tied = outcome_of({**pod, "spec": pod["spec"] | TIED}, capacity=EXACT)

    assert Code.GANG_COUNTED not in codes(tied)
    assert container_variables.ENV_VISIBLE_DEVICES in env_of(patched(pod, tied))


def test_mode_scheduler_brings_nvidia_gpus_to_our_scheduler_only_if_linkwise_places_them():
    policy = a_snapshot("placement: {mode: scheduler}")
    pod = a_pod({keys.NVIDIA_GPU: 1})

    assert admitted(pod, policy, capacity=EXACT)["spec"]["schedulerName"] == keys.SCHEDULER
    assert "schedulerName" not in admitted(pod, policy, capacity=SLICED)["spec"]


def test_replicas_above_the_capacity_of_nvidias_plugin_are_a_finding():
    capacity = Capacity(nodes=1, nvidia_replicas=4)

    outcome = outcome_of(a_pod({keys.NVIDIA_GPU_SHARED: 5}), capacity=capacity)

    (finding,) = (finding for finding in outcome.findings if finding.code is Code.CAPACITY)
    assert "5 nvidia.com/gpu.shared is more than any node has: at most 4" in finding.message
    few = outcome_of(a_pod({keys.NVIDIA_GPU_SHARED: 4}), capacity=capacity)
    assert Code.CAPACITY not in codes(few)


@pytest.mark.parametrize(
    ("pod", "findings"),
    [
        pytest.param(
            a_pod({keys.GPU_WHOLE: 2}, labels={keys.GPU_COUNT: "2"}),
            [(Code.COUNT_UNUSED, f"metadata.labels[{keys.GPU_COUNT}]")],
            id="cards-of-no-share",
        ),
        pytest.param(
            a_pod(
                containers=[
                    a_container({keys.GPU_WHOLE: 1}),
                    a_container(name="side", securityContext={"privileged": True}),
                ]
            ),
            [(Code.PRIVILEGED, "spec.containers[1].securityContext.privileged")],
            id="privileged",
        ),
        pytest.param(
            a_pod(
                containers=[a_container({keys.NVIDIA_GPU: 1}, securityContext={"privileged": True})]
            ),
            [],
            id="privileged-where-nvidias-plugin-chooses",
        ),
    ],
)
def test_misleading_requests_are_warnings(pod, findings):
    outcome = outcome_of(pod)

    assert [(finding.code, finding.field) for finding in outcome.findings] == findings
    assert outcome.verdict is Verdict.ALLOWED


# ---- Capacity.

SMALL = Capacity(nodes=2, memory_cards=(15, 15), compute_cards=(15, 15), whole=8)


@pytest.mark.parametrize(
    ("mode", "severities"),
    [("warn", [Severity.WARNING]), ("deny", [Severity.ERROR]), ("off", [])],
)
def test_request_above_the_capacity_is_a_finding_with_the_policys_severity(mode, severities):
    outcome = outcome_of(
        a_pod({keys.GPU_MEM: 20}), a_snapshot(f"capacity: '{mode}'"), capacity=SMALL
    )

    findings = [finding for finding in outcome.findings if finding.code is Code.CAPACITY]
    assert [finding.severity for finding in findings] == severities
    for finding in findings:
        assert "20 GiB" in finding.message
        assert "15 GiB" in finding.message
        assert finding.field.endswith(f"[{keys.GPU_MEM}]")


def test_request_within_the_capacity_has_no_finding():
    assert codes(outcome_of(a_pod({keys.GPU_WHOLE: 8}), capacity=SMALL)) == []


# ---- Records that users wrote.


def test_allocation_written_by_a_user_is_removed_with_a_warning():
    own = {
        keys.ALLOCATION: "{}",
        keys.VISIBLE_DEVICES: "0",
        keys.VISIBLE_DEVICES_OF + "c0": "0",
        keys.MEM_IDX: "0",
        "example.org/note": "kept",
    }

    outcome = outcome_of(a_pod({keys.GPU_MEM: 1}, annotations=own))
    after = patched(a_pod({keys.GPU_MEM: 1}, annotations=own), outcome)

    assert after["metadata"]["annotations"] == {"example.org/note": "kept"}
    assert codes(outcome) == [Code.RECORD_REMOVED] * 4
    assert len(outcome.warnings) == 3


# ---- Audit annotations and warnings.


def test_audit_annotations_have_policy_rules_and_findings():
    policy = a_snapshot()

    audit = outcome_of(a_pod({keys.GPU_WHOLE: 1}, annotations={keys.TERM: "1"}), policy).audit

    assert audit == {
        "policy": f"generation=0 digest={policy.digest}",
        "findings": "LW115",
        "rules": "record removed, affinity whole GPUs, gate single pod, visible devices",
    }
