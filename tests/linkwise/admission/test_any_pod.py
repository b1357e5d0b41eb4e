"""Properties of the admission of every pod under every policy."""

from hypothesis import assume, given
from hypothesis import strategies as st
from support.admission import (
    COMPUTE,
    DRIVER_PROFILE,
    REQUIRED,
    SLICED,
    TIME_SLICING,
    a_snapshot,
    outcome_of,
    patched,
)
from support.strategies import pods

from linkwise.admission.decide.outcome import Verdict
from linkwise.admission.patch.mutation import record_keys
from linkwise.cluster import container_variables, keys
from linkwise.cluster.finding import Severity

POLICIES = [
    a_snapshot(),
    a_snapshot("", [DRIVER_PROFILE, {"name": "all", "effect": {"annotations": {"b": "c"}}}]),
    a_snapshot("placement: {mode: scheduler}\nsharing: {computeByMps: true}\nstrict: false"),
    a_snapshot(TIME_SLICING + "  rename: true\n"),
    a_snapshot("placement: {claims: always, mode: scheduler}\nsharing: {rename: true}"),
    a_snapshot(
        "visibleDevices: deny\ngangs: {nonPreemptingClasses: {high: waits}}\nprofilesAll: true"
    ),
]

policies = st.sampled_from(POLICIES)


def asking(pod, limits):
    """Return a pod whose first container asks for these GPUs, and nothing else for any."""
    spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
    for name in ("containers", "initContainers"):
        spec[name] = [{**entry, "resources": None} for entry in spec.get(name) or []]
    spec["containers"][0]["resources"] = {"limits": limits}
    metadata = {key: value for key, value in pod["metadata"].items() if key != "labels"}
    return {**pod, "metadata": metadata, "spec": spec}


PLACED = ({keys.GPU_WHOLE: 1}, COMPUTE, {keys.NVIDIA_GPU_SHARED: 1})
BY_CLAIM = (*PLACED, {keys.NVIDIA_GPU: 2})

placed_pods = st.builds(asking, pods(), st.sampled_from(PLACED))


claimed_pods = st.builds(asking, pods(), st.sampled_from(BY_CLAIM))


@given(pod=claimed_pods | pods(), policy=policies)
def test_patch_applies_to_any_pod_and_is_idempotent(pod, policy):
    outcome = outcome_of(pod, policy)
    assume(outcome.verdict is Verdict.ALLOWED)

    after = patched(pod, outcome)

    again = outcome_of(after, policy)
    # Without its variables of IMEX or MIG, a pod may no longer concern GPUs.
    assert again.verdict in {Verdict.ALLOWED, Verdict.SKIPPED}
    assert again.patch == ()


@given(pod=pods(), policy=policies)
def test_admission_is_deterministic(pod, policy):
    assert outcome_of(pod, policy) == outcome_of(pod, policy)


def as_map(table):
    return table or {}


@given(pod=claimed_pods | pods(), policy=policies)
def test_fields_of_the_user_are_kept(pod, policy):
    outcome = outcome_of(pod, policy)
    after = patched(pod, outcome)

    before_meta, after_meta = pod["metadata"], after["metadata"]
    assert as_map(before_meta.get("labels")).items() <= as_map(after_meta.get("labels")).items()
    own = as_map(before_meta.get("annotations"))
    if outcome.verdict is Verdict.ALLOWED:
        own = {key: value for key, value in own.items() if not record_keys([key])}
    assert own.items() <= as_map(after_meta.get("annotations")).items()
    for name in ("containers", "initContainers"):
        for entry, other in zip(
            pod["spec"].get(name) or [], after["spec"].get(name) or [], strict=True
        ):
            assert_env_stays(entry.get("env") or [], other.get("env") or [], outcome.request.places)
    gates = pod["spec"].get("schedulingGates") or []
    assert (after["spec"].get("schedulingGates") or [])[: len(gates)] == gates


def assert_env_stays(before, after, places):
    """Assert that only devices changed, and limits where Linkwise chooses a pod's GPUs."""
    replaceable = {container_variables.ENV_VISIBLE_DEVICES, container_variables.ENV_CGPU_OFF}
    replaceable |= {
        container_variables.ENV_IMEX_CHANNELS,
        container_variables.ENV_MIG_CONFIG,
        container_variables.ENV_MIG_MONITOR,
    }
    if places:
        replaceable |= {container_variables.ENV_MPS_THREADS, container_variables.ENV_MPS_MEMORY}
        replaceable |= {keys.MEM_IDX, keys.MEM_POD, keys.MEM_DEV, keys.MEM_CONTAINER}
    kept = [entry for entry in before if entry["name"] not in replaceable]
    assert [entry for entry in after if entry["name"] not in replaceable][: len(kept)] == kept


ADDED_TO = {"containers", "initContainers", "affinity", "schedulingGates"}

SET = {"schedulerName", "priorityClassName", "priority", "preemptionPolicy"}

UNKNOWN = {"futureField", "x/y~z"}


@given(pod=pods(), policy=policies)
def test_unread_fields_are_kept(pod, policy):
    after = patched(pod, outcome_of(pod, policy))

    spec = {key: value for key, value in pod["spec"].items() if key not in ADDED_TO | SET}
    assert spec.items() <= after["spec"].items()
    assert unknown_in(pod) == unknown_in(after)


def unknown_in(thing, path=()):
    """Return the unknown fields anywhere in what admission adds to, by path."""
    if isinstance(thing, list):
        thing = dict(enumerate(thing))
    if not isinstance(thing, dict):
        return {}
    unknown = {(*path, key): thing[key] for key in UNKNOWN & thing.keys()}
    for key in thing.keys() - UNKNOWN:
        unknown |= unknown_in(thing[key], (*path, key))
    return unknown


@given(pod=placed_pods, policy=policies)
def test_every_term_has_each_required_key(pod, policy):
    assume(keys.NODE_MODE not in as_map(pod["spec"].get("nodeSelector")))

    outcome = outcome_of(pod, policy, capacity=SLICED)

    assume(outcome.verdict is Verdict.ALLOWED)
    spec = patched(pod, outcome)["spec"]
    for term in spec["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]:
        expressions = term.get("matchExpressions") or []
        if expressions or term.get("matchFields"):
            assert keys.NODE_MODE in {entry["key"] for entry in expressions}


@given(pod=pods(), policy=policies)
def test_warnings_of_any_pod_are_few_short_and_printable(pod, policy):
    outcome = outcome_of(pod, policy)

    assert len(outcome.warnings) <= 3
    assert all(len(warning) <= 120 and warning.isprintable() for warning in outcome.warnings)
    assert bool(outcome.warnings) == any(
        entry.severity is Severity.WARNING for entry in outcome.findings
    )


@given(pod=pods(), policy=policies)
def test_only_errors_deny_and_only_allowed_pods_have_a_patch(pod, policy):
    outcome = outcome_of(pod, policy)

    errors = Severity.ERROR in {entry.severity for entry in outcome.findings}
    assert (outcome.verdict is Verdict.DENIED) == errors
    if outcome.verdict is not Verdict.ALLOWED:
        assert outcome.patch == ()
