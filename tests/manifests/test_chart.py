import base64
import re
import tomllib
from pathlib import Path

import pytest
import yaml
from controlplane.chart import VALUES_SCHEMA, manifests, values_schema
from controlplane.chart_programs import built_helm
from controlplane.chart_readme import README, readme, values
from controlplane.openapi import VERSIONS

MANIFESTS = Path(__file__).parents[2] / "manifests"
WRITTEN_BY_HAND = {
    "base/kustomization.yaml",
    "base/namespace.yaml",
    "agent/kustomization.yaml",
    "autoscaling/kustomization.yaml",
    "cert-manager/kustomization.yaml",
    "claim-templates/kustomization.yaml",
    "dashboard/kustomization.yaml",
    "forced-deletion/kustomization.yaml",
    "preemption/kustomization.yaml",
    "profiles-all/kustomization.yaml",
    "provided-certificates/kustomization.yaml",
    "scheduler/kustomization.yaml",
    "scheduler/scorer.yaml",
}


def test_manifests_are_those_that_make_manifests_renders_from_the_chart():
    helm = built_helm()
    if helm is None:
        pytest.skip("Helm is not built; the end-to-end tests compare the objects")

    files = manifests(str(helm))

    assert {path: path.read_text() for path in files} == files
    others = set(MANIFESTS.glob("*/*.yaml")) - files.keys()
    assert {str(path.relative_to(MANIFESTS)) for path in others} == WRITTEN_BY_HAND


def test_schema_of_the_values_has_the_present_schema_of_the_policy():
    assert VALUES_SCHEMA.read_text() == values_schema(), "run `make manifests`"


def test_metadata_of_the_chart_are_those_of_the_project():
    chart = yaml.safe_load((README.parent / "Chart.yaml").read_text())
    project = tomllib.loads((MANIFESTS.parent / "pyproject.toml").read_text())["project"]
    gangs = yaml.safe_load((MANIFESTS / "base/gang-crd.yaml").read_text())

    annotations = chart["annotations"]
    assert annotations["artifacthub.io/license"] == project["license"]
    (listed,) = yaml.safe_load(annotations["artifacthub.io/crds"])
    assert listed["name"] == gangs["metadata"]["name"]
    assert listed["kind"] == gangs["spec"]["names"]["kind"]
    assert [listed["version"]] == [one["name"] for one in gangs["spec"]["versions"]]
    assert chart["kubeVersion"] == f">={VERSIONS[0]}-0"
    assert base64.b64decode(chart["icon"].partition(",")[2]).startswith(b"<svg ")


def test_readme_has_the_present_values():
    assert README.read_text() == readme(), "run `make manifests`"


def test_values_are_read_with_their_comments():
    first = "# Of the file.\n\n# Of a.\n# More.\na: {}\nb:\n  # Of c.\n  c: 1\n  d: [x]\n"
    text = f"{first}# Of e.\ne:\n  f: ''\n"

    assert list(values(text)) == [
        ("a", "{}", "Of a. More."),
        ("b.c", "1", "Of c."),
        ("b.d", "[x]", ""),
        ("e", "", "Of e."),
        ("e.f", "''", ""),
    ]


def test_every_value_is_in_the_readme():
    def leaves(value, path=""):
        for name, item in value.items():
            if isinstance(item, dict) and item:
                yield from leaves(item, f"{path}{name}.")
            else:
                yield f"{path}{name}"

    text = README.read_text()
    given = yaml.safe_load((README.parent / "values.yaml").read_text())

    # A map of one line is one row.
    rows = set(re.findall(r"^\| `([\w.]+)` \|", text, re.MULTILINE))
    assert not [
        path
        for path in leaves(given)
        if not {path.rsplit(".", cut)[0] for cut in range(path.count(".") + 1)} & rows
    ]


def test_selectors_are_those_of_earlier_versions():
    """Kubernetes refuses an upgrade that changes one."""
    found = {
        one["metadata"]["name"]: one["spec"]["selector"]
        for path in MANIFESTS.glob("*/*.yaml")
        if path.parent.name in {"base", "agent", "dashboard"}
        for one in yaml.safe_load_all(path.read_text())
        if one["kind"] in {"Deployment", "DaemonSet"}
    }

    def of(component, **more):
        return {
            "matchLabels": {
                "app.kubernetes.io/name": "linkwise",
                "app.kubernetes.io/component": component,
                **more,
            }
        }

    assert found == {
        "linkwise-webhook": of("webhook", **{"linkwise.dev/webhook": "first"}),
        "linkwise-webhook-standby": of("webhook", **{"linkwise.dev/webhook": "standby"}),
        "linkwise-certs": of("certs"),
        "linkwise-scorer": of("scorer"),
        "linkwise-agent": of("agent"),
        "linkwise-dashboard": of("dashboard"),
    }
