from pathlib import Path

import pytest
import yaml
from controlplane.chart import VALUES_SCHEMA, manifests, values_schema
from controlplane.chart_programs import built_helm

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
