from pathlib import Path

import yaml

from linkwise.cluster import keys
from scorer.scale_up.crd import OURS

FILE = Path(__file__).parents[2] / "manifests/autoscaling/access.yaml"


def test_rights_to_ask_an_autoscaler_are_the_scorers_alone():
    role, binding, *_ = yaml.safe_load_all(FILE.read_text(encoding="utf-8"))
    rights = {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    group = keys.PROVISIONING_API.partition("/")[0]
    assert rights == {
        *((group, "provisioningrequests", verb) for verb in ("list", "create", "delete")),
        *(("", "podtemplates", verb) for verb in ("create", "delete")),
        ("", "pods/status", "patch"),
    }
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert [(one["namespace"], one["name"]) for one in binding["subjects"]] == [
        (keys.POLICY_NAMESPACE, keys.SCORER)
    ]


def test_policy_names_the_label_of_our_objects():
    *_, policy, _ = yaml.safe_load_all(FILE.read_text(encoding="utf-8"))
    (condition,) = policy["spec"]["matchConditions"]
    ((label, value),) = OURS.items()
    assert f"labels[?'{label}'].orValue('') != '{value}'" in condition["expression"]
    assert policy["spec"]["failurePolicy"] == "Fail"
