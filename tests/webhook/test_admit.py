import json

import jsonpatch
import msgspec
import pytest
from builders import a_container, a_pod
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import pods

from cluster import keys
from cluster.capacity import Capacity
from cluster.finding import Code, Severity
from cluster.pod import Pod
from policy.document import parse_policy
from policy.profile import parse_profiles
from policy.snapshot import PolicySnapshot
from webhook.admit import admit
from webhook.normalise import record_keys
from webhook.outcome import Verdict
from webhook.workload import Workload

GATE = {"name": keys.GANG}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def a_snapshot(policy="", profiles=()):
    return PolicySnapshot(parse_policy(policy), parse_profiles(json.dumps(list(profiles))))


def judged(pod, policy=None, *, namespace=None, capacity=None, workload=None):
    return admit(
        msgspec.convert(pod, Pod),
        namespace="default",
        namespace_labels={} if namespace is None else namespace,
        policy=policy or PolicySnapshot(),
        capacity=capacity or Capacity(),
        workload=workload,
    )


def patched(pod, outcome):
    return jsonpatch.apply_patch(pod, [step.wire() for step in outcome.patch])


def admitted(pod, policy=None, **given):
    """Return the pod after an admission that must let it pass."""
    outcome = judged(pod, policy, **given)
    assert outcome.verdict is Verdict.ALLOWED, outcome.findings
    return patched(pod, outcome)


def codes(outcome, severity=None):
    return [one.code for one in outcome.findings if severity in {None, one.severity}]


def requirements_of(pod):
    terms = pod["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    (term,) = terms
    return {one["key"]: one["values"] for one in term["matchExpressions"]}


def env_of(pod, container=0):
    entries = pod["spec"]["containers"][container].get("env", [])
    return {one["name"]: one.get("valueFrom", one.get("value")) for one in entries}


# ---- What the protocols' own documents show.

COMPUTE = {keys.GPU_MEM: 2, keys.GPU_CORE: 30}
MODEL_AND_DRIVER = {
    keys.COMPUTE_CLASS: "gpu",
    keys.MODEL_SERIES: "T4",
    keys.DRIVER_VERSION: "535.161.08",
}
DRIVER_PROFILE = {
    "name": "gpu-hpn-driver",
    "objectSelector": {"matchLabels": {keys.COMPUTE_CLASS: "gpu-hpn"}},
    "effect": {"labels": {keys.DRIVER_VERSION: "1.5.0"}},
}
TIME_SLICING = f"""
sharing:
  groups:
  - config:
      sharing:
        timeSlicing:
          renameByDefault: true
          failRequestsGreaterThanOne: true
          resources: [{{name: {keys.NVIDIA_GPU}, replicas: 4}}]
"""


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
def test_the_protocols_examples_are_allowed_or_denied(pod, policy, denials):
    outcome = judged(pod, a_snapshot(policy))

    assert codes(outcome, Severity.ERROR) == denials
    assert outcome.verdict is (Verdict.DENIED if denials else Verdict.ALLOWED)


def test_a_denied_pod_is_not_patched():
    outcome = judged(
        a_pod({keys.GPU_CORE: 22}, annotations={keys.TERM: "1"}), a_snapshot("", [DRIVER_PROFILE])
    )

    assert outcome.verdict is Verdict.DENIED
    assert outcome.patch == ()


def test_all_problems_come_back_in_one_answer():
    env = [{"name": keys.ENV_VISIBLE_DEVICES, "value": "all"}]
    pod = a_pod(
        labels={keys.COMPUTE_CLASS: "fast", keys.MODEL_SERIES: "T5"},
        annotations={keys.ALLOCATION: "{}"},
        nodeName="n1",
        containers=[a_container({keys.GPU_MEM: "1.5", keys.GPU_CORE: 22}, env=env)],
    )

    outcome = judged(pod, a_snapshot("visibleDevices: deny"))

    assert set(codes(outcome)) == {
        Code.MEMORY_WHOLE,
        Code.CORE_STEP,
        Code.NODE_NAME,
        Code.CLASS,
        Code.MODEL,
        Code.VISIBLE_DEVICES,
        Code.RECORD_REMOVED,
    }


def test_a_profile_gives_the_driver_to_pods_of_its_class():
    policy = a_snapshot("", [DRIVER_PROFILE])
    pod = a_pod({keys.NVIDIA_GPU: 8}, labels={keys.COMPUTE_CLASS: "gpu-hpn"})

    outcome = judged(pod, policy)

    assert patched(pod, outcome)["metadata"]["labels"][keys.DRIVER_VERSION] == "1.5.0"
    assert outcome.labels[keys.DRIVER_VERSION] == "1.5.0"
    assert outcome.patch[0].rule == "profile gpu-hpn-driver"
    assert [one.matched for one in outcome.profiles] == [True]


def test_the_pods_own_driver_stands():
    labels = {keys.COMPUTE_CLASS: "gpu-hpn", keys.DRIVER_VERSION: "1.4.1"}

    pod = admitted(a_pod({keys.NVIDIA_GPU: 8}, labels=labels), a_snapshot("", [DRIVER_PROFILE]))

    assert pod["metadata"]["labels"] == labels


def test_a_profile_may_bring_what_is_judged():
    profile = {"name": "slip", "effect": {"labels": {keys.COMPUTE_CLASS: "fast"}}}

    outcome = judged(a_pod({keys.NVIDIA_GPU: 1}), a_snapshot("", [profile]))

    assert codes(outcome, Severity.ERROR) == [Code.CLASS]


def test_no_profile_writes_an_allocation():
    profile = {"name": "bold", "effect": {"annotations": {keys.TERM: "9", "note": "kept"}}}

    outcome = judged(a_pod({keys.GPU_WHOLE: 1}), a_snapshot("", [profile]))

    assert patched(a_pod({keys.GPU_WHOLE: 1}), outcome)["metadata"]["annotations"] == {
        "note": "kept"
    }
    assert outcome.annotations == {"note": "kept"}


def test_a_profile_of_a_namespace_that_is_not_known_is_left_out_with_a_warning():
    team = {"team": "vision"}
    profile = {
        "name": "team",
        "namespaceSelector": {"matchLabels": team},
        "effect": {"labels": team},
    }
    pod = msgspec.convert(a_pod({keys.NVIDIA_GPU: 1}), Pod)

    outcome = admit(
        pod,
        namespace="new",
        namespace_labels=None,
        policy=a_snapshot("", [profile]),
        capacity=Capacity(),
    )

    assert codes(outcome) == [Code.NAMESPACE_UNKNOWN]
    assert "team" not in outcome.labels
    assert (
        "team"
        in admitted(a_pod({keys.NVIDIA_GPU: 1}), a_snapshot("", [profile]), namespace=team)[
            "metadata"
        ]["labels"]
    )


def test_a_gpushare_pod_sees_only_its_card_whatever_it_says():
    env = [{"name": keys.ENV_VISIBLE_DEVICES, "value": "all"}]
    pod = a_pod(containers=[a_container({keys.GPU_MEM: 5}, env=env)])

    outcome = judged(pod)

    assert codes(outcome) == [Code.VISIBLE_DEVICES]
    reference = env_of(patched(pod, outcome))[keys.ENV_VISIBLE_DEVICES]
    assert reference["fieldRef"]["fieldPath"] == f"metadata.annotations['{keys.VISIBLE_DEVICES}']"
    assert len(outcome.warnings) == 1


# ---- Arena's gang: workers wait, the launcher does not.

ARENA = {
    keys.GPU_TOPOLOGY: "job",
    keys.GPU_TOPOLOGY_REPLICA: "4",
    keys.POD_GROUP_NAME: "job",
    keys.POD_GROUP_MIN_AVAILABLE: "4",
}


def test_a_gangs_worker_waits_on_nodes_where_gpus_are_chosen():
    pod = admitted(
        a_pod({keys.GPU_WHOLE: 1}, labels={**ARENA, keys.JOB_ROLE: "worker"}, hostNetwork=True)
    )

    assert pod["spec"]["schedulingGates"] == [GATE]
    assert requirements_of(pod) == {keys.NODE_MODE: ["topology"]}


def test_a_gangs_launcher_does_not_wait_and_sees_no_gpu():
    pod = admitted(a_pod({"cpu": 1}, labels={**ARENA, keys.JOB_ROLE: "launcher"}))

    assert "schedulingGates" not in pod["spec"]
    assert "affinity" not in pod["spec"]
    assert env_of(pod) == {keys.ENV_VISIBLE_DEVICES: "void"}


@pytest.mark.parametrize(
    ("limits", "mode", "gated"),
    [
        pytest.param({keys.GPU_WHOLE: 1}, "scheduler", True, id="whole"),
        pytest.param({keys.GPU_MEM: 1}, "scheduler", True, id="share"),
        pytest.param({keys.NVIDIA_GPU_SHARED: 1}, "scheduler", True, id="replica"),
        pytest.param({keys.NVIDIA_GPU: 1}, "scheduler", False, id="nvidia-chooses"),
        pytest.param({keys.NVIDIA_GPU: 1}, "gates", False, id="nvidia-chooses-with-gates"),
        pytest.param({"cpu": 1}, "gates", False, id="no-gpu"),
    ],
)
def test_members_whose_gpus_linkwise_chooses_are_gated(limits, mode, gated):
    pod = admitted(a_pod(limits, labels=ARENA), a_snapshot(f"placement: {{mode: {mode}}}"))

    assert pod["spec"].get("schedulingGates", []) == [GATE] * gated


def test_single_pods_are_gated_where_no_scheduler_of_ours_runs():
    pod = a_pod({keys.GPU_WHOLE: 1})

    assert admitted(pod)["spec"]["schedulingGates"] == [GATE]
    with_scheduler = admitted(pod, a_snapshot("placement: {mode: scheduler}"))
    assert "schedulingGates" not in with_scheduler["spec"]
    assert with_scheduler["spec"]["schedulerName"] == keys.SCHEDULER


def test_a_daemonsets_pod_stays_on_its_node_and_is_no_member():
    field = {"key": keys.NODE_NAME_FIELD, "operator": "In", "values": ["n1"]}
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": [field]}]}}}
    pod = a_pod({keys.GPU_WHOLE: 1}, labels=ARENA, owner="DaemonSet", affinity=affinity)

    after = admitted(pod, a_snapshot("placement: {mode: scheduler}"))

    (term,) = after["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert term["matchFields"] == [field]
    assert term["matchExpressions"][0]["key"] == keys.NODE_MODE
    assert "schedulingGates" not in after["spec"]


def test_other_gates_stay_and_ours_is_appended_once():
    other = {"name": "example.org/quota"}

    once = admitted(a_pod({keys.GPU_WHOLE: 1}, schedulingGates=[other]))

    assert once["spec"]["schedulingGates"] == [other, GATE]
    assert admitted(once) == once


@pytest.mark.parametrize(
    ("own", "after"),
    [(None, "linkwise"), ("", "linkwise"), ("default-scheduler", "linkwise"), ("mine", "mine")],
)
def test_a_scheduler_that_the_user_named_stands(own, after):
    spec = {} if own is None else {"schedulerName": own}

    pod = admitted(
        a_pod({keys.GPU_WHOLE: 1}, labels=ARENA, **spec), a_snapshot("placement: {mode: scheduler}")
    )

    assert pod["spec"]["schedulerName"] == after


def test_held_pods_get_the_class_that_preempts_nobody_and_the_api_server_tells_what_it_means():
    policy = a_snapshot("gangs: {nonPreemptingClasses: {high: high-waits}}")
    spec = {"priorityClassName": "high", "priority": 7, "preemptionPolicy": "PreemptLowerPriority"}

    pod = admitted(a_pod({keys.GPU_WHOLE: 1}, **spec), policy)

    assert pod["spec"]["priorityClassName"] == "high-waits"
    assert not {"priority", "preemptionPolicy"} & pod["spec"].keys()
    assert judged(pod, policy).patch == ()


@pytest.mark.parametrize(
    ("limits", "spec"),
    [
        pytest.param({keys.GPU_WHOLE: 1}, {"priorityClassName": "low"}, id="another class"),
        pytest.param({keys.GPU_WHOLE: 1}, {}, id="no class"),
        pytest.param({keys.NVIDIA_GPU: 1}, {"priorityClassName": "high"}, id="not held"),
    ],
)
def test_other_pods_keep_their_priority(limits, spec):
    policy = a_snapshot("gangs: {nonPreemptingClasses: {high: high-waits}}")
    given = {**spec, "priority": 7, "preemptionPolicy": "PreemptLowerPriority"}

    pod = admitted(a_pod(limits, **given), policy)

    assert given.items() <= pod["spec"].items()
    assert pod["spec"].get("priorityClassName") == spec.get("priorityClassName")


def test_a_gang_of_a_workload_is_judged_with_it():
    workload = Workload("StatefulSet", "web", members=4, ordered=True)

    outcome = judged(a_pod({keys.GPU_WHOLE: 1}, labels=ARENA), workload=workload)

    assert codes(outcome, Severity.ERROR) == [Code.GANG_ORDERED]


def test_a_size_that_is_no_number_is_told_for_members_only():
    labels = {**ARENA, keys.POD_GROUP_MIN_AVAILABLE: "many"}

    assert Code.GANG_SIZE in codes(judged(a_pod({keys.GPU_WHOLE: 1}, labels=labels)))
    assert codes(judged(a_pod({keys.NVIDIA_GPU: 1}, labels=labels))) == []


# ---- Scope.


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(a_pod({"cpu": 1}), id="no-gpu"),
        pytest.param(a_pod(labels={"app": "web"}), id="other-labels"),
        pytest.param(
            a_pod({keys.GPU_WHOLE: 1}, annotations={keys.MIRROR_POD: "x"}), id="mirror-pod"
        ),
    ],
)
def test_pods_with_nothing_of_ours_pass_untouched(pod):
    outcome = judged(pod, a_snapshot("", [{"name": "all", "effect": {"labels": {"a": "b"}}}]))

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
def test_pods_with_something_of_ours_are_looked_at(pod):
    assert judged(pod).verdict is not Verdict.SKIPPED


def test_profiles_reach_all_pods_where_the_policy_says_so():
    policy = a_snapshot("profilesAll: true", [{"name": "all", "effect": {"labels": {"a": "b"}}}])

    assert admitted(a_pod({"cpu": 1}), policy)["metadata"]["labels"] == {"a": "b"}


# ---- GPUs that NVIDIA's plugin shares.


def test_a_request_gets_the_name_that_nodes_have_for_it():
    pod = a_pod({keys.NVIDIA_GPU: 1})

    outcome = judged(pod, a_snapshot(TIME_SLICING + "  rename: true"))

    after = patched(pod, outcome)
    assert after["spec"]["containers"][0]["resources"]["limits"] == {keys.NVIDIA_GPU_SHARED: 1}
    assert requirements_of(after) == {keys.NODE_MODE: ["timeslice"]}
    assert env_of(after)[keys.ENV_REPLICAS] == "4"
    assert env_of(after)[keys.ENV_MEMORY_FRACTION] == "0.225"
    assert [one.field for one in outcome.findings] == [
        f"spec.containers[0].resources.limits[{keys.NVIDIA_GPU}]"
    ]


def test_a_pod_whose_gpus_nvidias_plugin_chooses_is_told_its_part_and_nothing_else():
    policy = a_snapshot(TIME_SLICING.replace("renameByDefault: true", "renameByDefault: false"))

    pod = admitted(a_pod({keys.NVIDIA_GPU: 1}, {"cpu": 1}), policy)

    assert env_of(pod).keys() == {keys.ENV_REPLICAS, keys.ENV_MEMORY_FRACTION}
    assert env_of(pod, 1) == {}
    assert "schedulingGates" not in pod["spec"]


# ---- Capacity.

SMALL = Capacity(nodes=2, memory_cards=(15, 15), compute_cards=(15, 15), whole=8)


@pytest.mark.parametrize(
    ("mode", "severities"),
    [("warn", [Severity.WARNING]), ("deny", [Severity.ERROR]), ("off", [])],
)
def test_more_than_any_node_offers_is_told_as_the_policy_says(mode, severities):
    outcome = judged(a_pod({keys.GPU_MEM: 20}), a_snapshot(f"capacity: '{mode}'"), capacity=SMALL)

    found = [one for one in outcome.findings if one.code is Code.CAPACITY]
    assert [one.severity for one in found] == severities
    for one in found:
        assert "20 GiB" in one.message
        assert "15 GiB" in one.message
        assert one.field.endswith(f"[{keys.GPU_MEM}]")


def test_what_a_node_offers_is_not_told():
    assert codes(judged(a_pod({keys.GPU_WHOLE: 8}), capacity=SMALL)) == []


# ---- Records that users wrote.


def test_an_allocation_that_the_user_wrote_is_removed_with_a_warning():
    own = {
        keys.ALLOCATION: "{}",
        keys.VISIBLE_DEVICES: "0",
        keys.VISIBLE_DEVICES_OF + "c0": "0",
        keys.MEM_IDX: "0",
        "example.org/note": "kept",
    }

    outcome = judged(a_pod({keys.GPU_MEM: 1}, annotations=own))
    after = patched(a_pod({keys.GPU_MEM: 1}, annotations=own), outcome)

    assert after["metadata"]["annotations"] == {"example.org/note": "kept"}
    assert codes(outcome) == [Code.RECORD_REMOVED] * 4
    assert len(outcome.warnings) == 3


# ---- Properties of every pod.

POLICIES = [
    a_snapshot(),
    a_snapshot("", [DRIVER_PROFILE, {"name": "all", "effect": {"annotations": {"b": "c"}}}]),
    a_snapshot("placement: {mode: scheduler}\nsharing: {computeByMps: true}\nstrict: false"),
    a_snapshot(TIME_SLICING + "  rename: true\n"),
    a_snapshot(
        "visibleDevices: deny\ngangs: {nonPreemptingClasses: {high: waits}}\nprofilesAll: true"
    ),
]
policies = st.sampled_from(POLICIES)


def asking(pod, limits):
    """Return a pod whose first container asks for these GPUs, and nothing else for any."""
    spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
    for name in ("containers", "initContainers"):
        spec[name] = [{**one, "resources": None} for one in spec.get(name) or []]
    spec["containers"][0]["resources"] = {"limits": limits}
    metadata = {key: value for key, value in pod["metadata"].items() if key != "labels"}
    return {**pod, "metadata": metadata, "spec": spec}


PLACED = ({keys.GPU_WHOLE: 1}, COMPUTE, {keys.NVIDIA_GPU_SHARED: 1})
placed_pods = st.builds(asking, pods(), st.sampled_from(PLACED))


@given(pod=placed_pods | pods(), policy=policies)
def test_the_patch_applies_to_any_pod_and_a_second_pass_changes_nothing(pod, policy):
    outcome = judged(pod, policy)
    assume(outcome.verdict is Verdict.ALLOWED)

    after = patched(pod, outcome)

    again = judged(after, policy)
    assert again.verdict is Verdict.ALLOWED
    assert again.patch == ()


@given(pod=pods(), policy=policies)
def test_equal_pods_get_equal_answers(pod, policy):
    assert judged(pod, policy) == judged(pod, policy)


def as_map(table):
    return table or {}


@given(pod=placed_pods | pods(), policy=policies)
def test_what_the_user_wrote_stays(pod, policy):
    outcome = judged(pod, policy)
    after = patched(pod, outcome)

    before_meta, after_meta = pod["metadata"], after["metadata"]
    assert as_map(before_meta.get("labels")).items() <= as_map(after_meta.get("labels")).items()
    own = as_map(before_meta.get("annotations"))
    if outcome.verdict is Verdict.ALLOWED:
        own = {key: value for key, value in own.items() if not record_keys([key])}
    assert own.items() <= as_map(after_meta.get("annotations")).items()
    for name in ("containers", "initContainers"):
        for one, other in zip(
            pod["spec"].get(name) or [], after["spec"].get(name) or [], strict=True
        ):
            assert_env_stays(one.get("env") or [], other.get("env") or [], outcome.request.places)
    gates = pod["spec"].get("schedulingGates") or []
    assert (after["spec"].get("schedulingGates") or [])[: len(gates)] == gates


def assert_env_stays(before, after, places):
    """Assert that nothing but devices and limits changed, in a pod whose GPUs Linkwise chooses."""
    for one, other in zip(before, after[: len(before)], strict=True):
        replaceable = {keys.ENV_VISIBLE_DEVICES, keys.ENV_MPS_THREADS, keys.ENV_MPS_MEMORY}
        assert one == other or (places and one["name"] in replaceable)


ADDED_TO = {"containers", "initContainers", "affinity", "schedulingGates"}
SET = {"schedulerName", "priorityClassName", "priority", "preemptionPolicy"}
UNKNOWN = {"futureField", "x/y~z"}


@given(pod=pods(), policy=policies)
def test_fields_that_nobody_reads_survive(pod, policy):
    after = patched(pod, judged(pod, policy))

    spec = {key: value for key, value in pod["spec"].items() if key not in ADDED_TO | SET}
    assert spec.items() <= after["spec"].items()
    assert unknown_in(pod) == unknown_in(after)


def unknown_in(thing, path=()):
    """Return the unknown fields anywhere in what admission adds to, by path."""
    if isinstance(thing, list):
        thing = dict(enumerate(thing))
    if not isinstance(thing, dict):
        return {}
    found = {(*path, key): thing[key] for key in UNKNOWN & thing.keys()}
    for key in thing.keys() - UNKNOWN:
        found |= unknown_in(thing[key], (*path, key))
    return found


@given(pod=placed_pods, policy=policies)
def test_every_term_is_constrained_or_has_decided(pod, policy):
    assume(keys.NODE_MODE not in as_map(pod["spec"].get("nodeSelector")))

    outcome = judged(pod, policy)

    assume(outcome.verdict is Verdict.ALLOWED)
    spec = patched(pod, outcome)["spec"]
    for term in spec["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]:
        expressions = term.get("matchExpressions") or []
        if expressions or term.get("matchFields"):
            assert keys.NODE_MODE in {one["key"] for one in expressions}


@given(pod=pods(), policy=policies)
def test_warnings_are_few_short_and_printable(pod, policy):
    outcome = judged(pod, policy)

    assert len(outcome.warnings) <= 3
    assert all(len(warning) <= 120 and warning.isprintable() for warning in outcome.warnings)
    assert bool(outcome.warnings) == any(
        one.severity is Severity.WARNING for one in outcome.findings
    )


@given(pod=pods(), policy=policies)
def test_only_errors_deny_and_only_allowed_pods_are_patched(pod, policy):
    outcome = judged(pod, policy)

    errors = Severity.ERROR in {one.severity for one in outcome.findings}
    assert (outcome.verdict is Verdict.DENIED) == errors
    if outcome.verdict is not Verdict.ALLOWED:
        assert outcome.patch == ()


def test_a_decision_tells_the_audit_log_its_policy_rules_and_findings():
    policy = a_snapshot()

    audit = judged(a_pod({keys.GPU_WHOLE: 1}, annotations={keys.TERM: "1"}), policy).audit

    assert audit == {
        "policy": f"generation=0 digest={policy.digest}",
        "findings": "LW115",
        "rules": "record removed, affinity whole GPUs, gate single pod, visible devices",
    }
