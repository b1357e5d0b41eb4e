"""Labels and annotations that profiles add to selected pods."""

from support.admission import DRIVER_PROFILE, a_snapshot, admitted, codes, outcome_of, patched
from support.builders import a_pod

from linkwise.cluster import keys
from linkwise.cluster.finding import Code, Severity


def test_profile_adds_the_driver_to_pods_of_its_class():
    policy = a_snapshot("", [DRIVER_PROFILE])
    pod = a_pod({keys.NVIDIA_GPU: 8}, labels={keys.COMPUTE_CLASS: "gpu-hpn"})

    outcome = outcome_of(pod, policy)

    assert patched(pod, outcome)["metadata"]["labels"][keys.DRIVER_VERSION] == "1.5.0"
    assert outcome.labels[keys.DRIVER_VERSION] == "1.5.0"
    assert outcome.patch[0].rule == "profile gpu-hpn-driver"
    assert [trace.matched for trace in outcome.profiles] == [True]


def test_driver_of_the_pod_is_kept():
    labels = {keys.COMPUTE_CLASS: "gpu-hpn", keys.DRIVER_VERSION: "1.4.1"}

    pod = admitted(a_pod({keys.NVIDIA_GPU: 8}, labels=labels), a_snapshot("", [DRIVER_PROFILE]))

    assert pod["metadata"]["labels"] == labels


def test_labels_of_profiles_are_validated():
    profile = {"name": "slip", "effect": {"labels": {keys.COMPUTE_CLASS: "fast"}}}

    outcome = outcome_of(a_pod({keys.NVIDIA_GPU: 1}), a_snapshot("", [profile]))

    assert codes(outcome, Severity.ERROR) == [Code.CLASS]


def test_profiles_cannot_write_an_allocation():
    profile = {"name": "bold", "effect": {"annotations": {keys.TERM: "9", "note": "kept"}}}

    outcome = outcome_of(a_pod({keys.GPU_WHOLE: 1}), a_snapshot("", [profile]))

    assert patched(a_pod({keys.GPU_WHOLE: 1}), outcome)["metadata"]["annotations"] == {
        "note": "kept"
    }
    assert outcome.annotations == {"note": "kept"}


def test_namespace_selector_of_an_unknown_namespace_does_not_match_with_a_warning():
    team = {"team": "vision"}
    profile = {
        "name": "team",
        "namespaceSelector": {"matchLabels": team},
        "effect": {"labels": team},
    }
    pod, policy = a_pod({keys.NVIDIA_GPU: 1}), a_snapshot("", [profile])

    outcome = outcome_of(pod, policy, namespace=None)

    assert codes(outcome) == [Code.NAMESPACE_UNKNOWN]
    assert "team" not in outcome.labels
    assert "team" in admitted(pod, policy, namespace=team)["metadata"]["labels"]


def test_profiles_all_applies_profiles_to_all_pods():
    policy = a_snapshot("profilesAll: true", [{"name": "all", "effect": {"labels": {"a": "b"}}}])

    assert admitted(a_pod({"cpu": 1}), policy)["metadata"]["labels"] == {"a": "b"}
