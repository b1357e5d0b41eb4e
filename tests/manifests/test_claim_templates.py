from pathlib import Path

import yaml

from linkwise.cluster import keys

FILE = Path(__file__).parents[2] / "manifests/claim-templates/access.yaml"


def objects():
    return list(yaml.safe_load_all(FILE.read_text(encoding="utf-8")))


def rights(role):
    return {
        (resource, verb)
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_scorer_may_patch_claims_and_admission_may_read_templates():
    scorer, _, webhook, *_ = objects()

    assert rights(scorer) == {
        *((f"resourceclaims{part}", "patch") for part in ("", "/status", "/binding")),
        ("deviceclasses", "get"),
    }
    read = ("resourceclaimtemplates", "resourceclaims", "deviceclasses")
    assert rights(webhook) == {(resource, "get") for resource in read}


def test_rights_are_those_of_one_account_each():
    bindings = [one for one in objects() if one["kind"] == "ClusterRoleBinding"]

    subjects = [[(one["namespace"], one["name"]) for one in each["subjects"]] for each in bindings]
    assert subjects == [
        [(keys.POLICY_NAMESPACE, keys.SCORER)],
        [(keys.POLICY_NAMESPACE, "linkwise-webhook")],
    ]
    assert all(each["roleRef"]["name"] == each["metadata"]["name"] for each in bindings)


def test_policy_fails_closed_for_the_scorer_alone():
    *_, policy, _ = objects()
    (condition,) = policy["spec"]["matchConditions"]

    assert policy["spec"]["failurePolicy"] == "Fail"
    assert f"system:serviceaccount:{keys.POLICY_NAMESPACE}:{keys.SCORER}" in condition["expression"]
