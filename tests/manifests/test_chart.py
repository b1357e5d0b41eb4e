from pathlib import Path

import pytest
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
