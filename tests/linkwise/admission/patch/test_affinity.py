import jsonpatch
import msgspec
import pytest
from hypothesis import assume, given
from support.strategies import pods

from linkwise.admission.patch.affinity import NodeRequirement, add_requirements
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.objects.selector import node_matches

ZONE = NodeRequirement("zone", ("a", "b"), "affinity test")
TYPE = NodeRequirement("type", ("reserved",), "affinity type")
ZONE_EXPRESSION = {"key": "zone", "operator": "In", "values": ["a", "b"]}
FIELD = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
OTHER = {"key": "disk", "operator": "Exists"}


def applied(spec, requirements):
    steps = add_requirements(msgspec.convert({"spec": spec}, Pod).spec, requirements)
    return jsonpatch.apply_patch({"spec": spec}, [step.wire() for step in steps])["spec"]


def terms(*terms):
    required = {"nodeSelectorTerms": list(terms)}
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    }


MADE = terms({"matchExpressions": [ZONE_EXPRESSION]})


@pytest.mark.parametrize(
    ("spec", "after"),
    [
        pytest.param({}, MADE, id="nothing"),
        pytest.param({"affinity": None}, MADE, id="null-affinity"),
        pytest.param({"affinity": {}}, MADE, id="empty-affinity"),
        pytest.param({"affinity": {"nodeAffinity": None}}, MADE, id="null-node-affinity"),
        pytest.param({"affinity": {"nodeAffinity": {}}}, MADE, id="empty-node-affinity"),
        pytest.param(terms(), MADE, id="no-terms"),
        pytest.param(
            terms({"matchExpressions": [OTHER]}),
            terms({"matchExpressions": [OTHER, ZONE_EXPRESSION]}),
            id="another-key",
        ),
        pytest.param(
            terms({"matchFields": [FIELD]}),
            terms({"matchFields": [FIELD], "matchExpressions": [ZONE_EXPRESSION]}),
            id="fields-only-as-daemonsets-have",
        ),
        pytest.param(
            terms({"matchFields": [FIELD], "matchExpressions": []}),
            terms({"matchFields": [FIELD], "matchExpressions": [ZONE_EXPRESSION]}),
            id="fields-and-empty-expressions",
        ),
        pytest.param(
            terms(
                {"matchExpressions": [OTHER]},
                {"matchExpressions": [{"key": "zone", "operator": "Exists"}]},
            ),
            terms(
                {"matchExpressions": [OTHER, ZONE_EXPRESSION]},
                {"matchExpressions": [{"key": "zone", "operator": "Exists"}]},
            ),
            id="one-term-decided-the-other-not",
        ),
        pytest.param(
            {"nodeSelector": {"zone": "c"}, **terms({"matchExpressions": [OTHER]})},
            {"nodeSelector": {"zone": "c"}, **terms({"matchExpressions": [OTHER]})},
            id="node-selector-decides-for-all",
        ),
        pytest.param(terms({}), terms({}), id="an-empty-term-matches-nothing-and-stays"),
        pytest.param(
            terms({}, {"matchExpressions": [OTHER]}),
            terms({}, {"matchExpressions": [OTHER, ZONE_EXPRESSION]}),
            id="an-empty-term-beside-another",
        ),
    ],
)
def test_requirement_is_added_to_every_term_without_its_key(spec, after):
    assert applied(spec, [ZONE]) == after


def test_each_requirement_is_added_independently():
    spec = {
        "nodeSelector": {"type": "own"},
        **terms({"matchExpressions": [OTHER]}, {"matchFields": [FIELD]}),
    }

    after = applied(spec, [ZONE, TYPE])

    assert after == {
        "nodeSelector": {"type": "own"},
        **terms(
            {"matchExpressions": [OTHER, ZONE_EXPRESSION]},
            {"matchFields": [FIELD], "matchExpressions": [ZONE_EXPRESSION]},
        ),
    }


def test_no_requirements_need_no_patch():
    assert add_requirements(Pod().spec, []) == []


def _required_has_terms(spec):
    node = spec.affinity and spec.affinity.node_affinity
    required = node and node.required_during_scheduling_ignored_during_execution
    return not required or bool(required.node_selector_terms)


def _decides_zone(spec):
    return b'"zone"' in msgspec.json.encode([spec.node_selector, spec.affinity])


@given(pod=pods())
def test_requirements_only_remove_nodes(pod):
    before = msgspec.convert(pod, Pod, strict=False).spec
    # A required affinity without terms is refused by every API server, unless it gets one.
    assume(_required_has_terms(before))
    after = msgspec.convert({"spec": applied(pod["spec"], [ZONE])}, Pod, strict=False).spec

    for zone in ("a", "b", "z"):
        labels = {"zone": zone, "disk": "ssd"}
        if node_matches(after, "n1", labels):
            assert node_matches(before, "n1", labels)
        elif node_matches(before, "n1", labels):
            assert zone == "z"
    if not _decides_zone(before):
        assert not node_matches(after, "n1", {"zone": "z", "disk": "ssd"})
