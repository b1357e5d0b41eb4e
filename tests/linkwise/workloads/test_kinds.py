"""The manifests and documents have the same kinds as the registry."""

import json
import re
from pathlib import Path

import pytest
import yaml

from linkwise.workloads.registry import GANG_KINDS, KINDS, kind_of

ROOT = Path(__file__).parents[3]
READ = [kind for kind in KINDS if kind.plural]


def named(kind):
    """Return a kind as documents name it."""
    return "Jobs of Volcano" if kind.group == "batch.volcano.sh" else f"{kind.name}s"


def document(name):
    return (ROOT / name).read_text()


def granted(manifest, role):
    """Return API group and resource of everything that a ClusterRole may get."""
    documents = yaml.safe_load_all(document(f"manifests/base/{manifest}.yaml"))
    (rules,) = [
        one["rules"]
        for one in documents
        if (one["kind"], one["metadata"]["name"]) == ("ClusterRole", role)
    ]
    return {
        (group, resource)
        for rule in rules
        if "get" in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def test_each_kind_is_registered_once():
    assert len({(kind.group, kind.name) for kind in KINDS}) == len(KINDS)
    assert len(set(GANG_KINDS)) == len(GANG_KINDS)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.name}.{kind.group}")
def test_a_kind_is_found_by_api_version_and_name(kind):
    version = kind.versions[0] if kind.versions else "v1"

    assert kind_of(f"{kind.group}/{version}" if kind.group else version, kind.name) is kind
    assert kind.knows(f"{kind.group}/{version}")
    assert kind_of(f"{kind.group}.example.org/{version}", kind.name) is None


@pytest.mark.parametrize(
    ("manifest", "role"),
    [("scorer-access", "linkwise-scorer"), ("viewer-roles", "linkwise-view")],
    ids=["scorer", "viewers"],
)
def test_objects_that_size_a_gang_may_be_read(manifest, role):
    assert {(kind.group, kind.plural) for kind in READ} <= granted(manifest, role)


def test_the_schema_of_the_policy_has_the_kinds_of_gangs():
    schema = json.loads(document("docs/schemas/Policy.json"))

    assert schema["$defs"]["Gangs"]["properties"]["kinds"]["items"]["enum"] == list(GANG_KINDS)


def test_the_table_of_the_policy_has_the_kinds_of_gangs():
    _, _, section = document("docs/policy.md").partition("### Gangs without a mark")
    rows = re.findall(r"^\| (`[^|]+) \|", section.partition("\n#")[0], re.MULTILINE)

    assert set(re.findall("`([^`]+)`", " ".join(rows))) == set(GANG_KINDS)


@pytest.mark.parametrize("name", ["docs/command.md", "docs/dry-run.md"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.sized], ids=named)
def test_documents_name_each_kind_that_files_may_have(name, kind):
    assert named(kind) in document(name)


def test_documents_name_each_kind_whose_objects_the_scorer_reads():
    text = document("docs/operations/install.md")

    assert [kind.name for kind in READ if named(kind) not in text] == []
