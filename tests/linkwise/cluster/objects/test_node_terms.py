import msgspec
import pytest
from support.builders import a_pod

from linkwise.cluster.objects.node_terms import (
    MAX_REQUIREMENTS,
    MAX_TERMS,
    MAX_VALUES,
    node_terms_finding,
)
from linkwise.cluster.objects.pod import Pod


def requirement(values=1):
    return {"key": "a", "operator": "In", "values": ["b"] * values}


def term(requirements=1, values=1):
    half = requirements // 2
    return {
        "matchExpressions": [requirement(values)] * (requirements - half),
        "matchFields": [requirement(values)] * half,
    }


def finding(*terms, selected=0):
    required = {"nodeSelectorTerms": list(terms)}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    selector = {f"label-{i}": "" for i in range(selected)}
    spec = {"affinity": affinity if terms else None, "nodeSelector": selector}
    return node_terms_finding(msgspec.convert(a_pod(**spec), Pod).spec)


@pytest.mark.parametrize(
    ("terms", "selected"),
    [
        pytest.param([], 0, id="nothing"),
        pytest.param([term()] * MAX_TERMS, 0, id="terms"),
        pytest.param([term(MAX_REQUIREMENTS - 1)], 1, id="requirements"),
        pytest.param([], MAX_REQUIREMENTS, id="selector"),
        pytest.param([term(2, MAX_VALUES // 2)], 0, id="values"),
    ],
)
def test_node_terms_at_the_limit_are_allowed(terms, selected):
    assert finding(*terms, selected=selected) is None


@pytest.mark.parametrize(
    ("terms", "selected", "message"),
    [
        pytest.param([term()] * 101, 0, "101 terms for its node, and at most 100", id="terms"),
        pytest.param([term(200)], 1, "201 requirements for its node, and at most 200", id="both"),
        pytest.param([], 201, "201 requirements for its node, and at most 200", id="selector"),
        pytest.param([term(2, 501)], 0, "1002 values for its node, and at most 1000", id="values"),
    ],
)
def test_node_terms_above_the_limit_are_refused_with_their_field(terms, selected, message):
    found = finding(*terms, selected=selected)

    assert message in found.message
    assert found.field == (
        "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
        if terms
        else "spec.nodeSelector"
    )
