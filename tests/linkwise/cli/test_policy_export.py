import json

import pytest
from support.documents import PROFILE

ALL = "kind: Policy\nprofilesAll: true\n"
MODELS = "catalogue: {replace: true, models: {X1: {memory: 16, aliases: [X1A]}}}\n"


@pytest.fixture
def export(linkwise, write):
    def export_text(text, target="map,vap", *arguments):
        write("f", text)
        return linkwise("policy", "export", "f", "--target", target, *arguments)

    return export_text


def test_each_policy_comes_with_its_binding(export):
    code, out, err = export(f"{PROFILE}---\n{ALL}{MODELS}", "map,vap", "-o", "json")

    assert (code, err) == (0, "")
    names = {
        item["kind"]: item["spec"].get("policyName", item["metadata"]["name"])
        for item in json.loads(out)["items"]
    }
    assert names == {
        "MutatingAdmissionPolicy": "linkwise-profiles",
        "MutatingAdmissionPolicyBinding": "linkwise-profiles",
        "ValidatingAdmissionPolicy": "linkwise-models",
        "ValidatingAdmissionPolicyBinding": "linkwise-models",
    }


def test_unknown_models_are_a_warning_unless_strict(export):
    _, out, _ = export(f"{ALL}{MODELS}strict: false\n", "vap", "-o", "json")

    assert json.loads(out)["items"][1]["spec"]["validationActions"] == ["Warn"]


def test_records_are_not_added(export):
    effect = {"annotations": {"linkwise.dev/allocation": "{}", "note": "kept"}}
    selectors = json.dumps([{"name": "a", "effect": effect}])
    text = f"data:\n  selectors: |\n    {selectors}\n  policy.yaml: |\n    profilesAll: true\n"
    code, out, _ = export(f"apiVersion: v1\nkind: ConfigMap\n{text}", "map")

    assert code == 0
    assert "note" in out
    assert "linkwise.dev/allocation" not in out


@pytest.mark.parametrize(
    ("text", "target", "reason"),
    [
        pytest.param(PROFILE, "map", "set profilesAll: true", id="only pods that concern GPUs"),
        pytest.param(f"{ALL}capacity: deny\n", "map", "f:3: capacity: target map", id="a key"),
        pytest.param(f"{ALL}{MODELS}", "map", "f:3: catalogue", id="a key of the other target"),
        pytest.param(ALL, "vap", "drivers and numbers of GPUs", id="the shipped models"),
        pytest.param(ALL, "map", "no profiles", id="nothing"),
        pytest.param(f"{PROFILE}---\n{ALL}{MODELS}", "vap", "add map", id="profiles"),
        pytest.param(
            f"{ALL}sharing: {{rename: true}}\n", "map,vap", "sharing.rename: target", id="sharing"
        ),
    ],
)
def test_what_cannot_be_expressed_is_refused(export, text, target, reason):
    code, out, err = export(text, target)

    assert (code, out) == (1, "")
    assert reason in err


def test_an_expression_beyond_the_limit_of_cel_is_refused(export):
    effect = {"annotations": {"note": "x" * 100_000}}
    selectors = json.dumps([{"name": "a", "effect": effect}])
    text = f"data:\n  selectors: |\n    {selectors}\n  policy.yaml: |\n    profilesAll: true\n"
    code, out, err = export(f"apiVersion: v1\nkind: ConfigMap\n{text}", "map")

    assert (code, out) == (1, "")
    assert "more than 100,000 characters" in err


@pytest.mark.parametrize("target", ["", "webhook", "map,"])
def test_an_unknown_target_is_a_usage_error(export, target):
    code, out, err = export(ALL, target)

    assert (code, out) == (2, "")
    assert "Write map, vap or map,vap" in err
