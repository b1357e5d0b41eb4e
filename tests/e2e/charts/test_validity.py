"""The rendered objects are valid in each supported Kubernetes version, and so are the rules."""

import json
import subprocess

import pytest
import yaml
from controlplane.chart import CHART, rendered
from controlplane.chart_programs import promtool
from controlplane.manifests import NAMESPACE
from controlplane.openapi import LOCATION, VERSIONS, write_schemas
from controlplane.required import required

SCHEDULER = "--set=scheduler.enabled=true,scheduler.image.repository=kube-scheduler"
EVERYTHING = (
    SCHEDULER,
    "--set=monitoring.podMonitor=true,monitoring.alerts=true,monitoring.dashboard=true",
    "--set=dashboard.enabled=true,dashboard.hosts={gpus.example}",
    "--set=certs.mode=cert-manager,policy.autoscaling.request=provisioningRequest,policy.profilesAll=true,logLevel=debug",
)
DEFINED_ELSEWHERE = ["PodMonitor", "PrometheusRule", "Certificate", "Issuer"]
"""Kinds of Prometheus Operator and cert-manager."""
CRD = "CustomResourceDefinition"
NEWER = ["MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"]
"""Kinds that the chart leaves out where the API server does not serve them."""


@pytest.fixture(scope="module")
def schemas(tmp_path_factory, programs):
    del programs  # Without Go, neither is there.
    folder = tmp_path_factory.mktemp("schemas")
    write_schemas(folder)
    return folder


@pytest.fixture
def conform(programs, schemas):
    def run(version, text):
        # The clients of versions before 1.37 have no types of definitions.
        known = {path.name for path in (schemas / f"v{version}").iterdir()}
        skipped = list(DEFINED_ELSEWHERE)
        if "customresourcedefinition-apiextensions-v1.json" not in known:
            skipped.append(CRD)
        if "mutatingadmissionpolicy-admissionregistration-v1.json" not in known:
            skipped += NEWER
        argv = [
            programs["kubeconform"],
            "-strict",
            "-summary",
            f"-kubernetes-version={version}",
            f"-schema-location={schemas}/{LOCATION}",
            f"-skip={','.join(skipped)}",
        ]
        return subprocess.run(argv, input=text, capture_output=True, text=True, check=False)

    return run


@pytest.fixture(scope="module")
def all_objects(programs):
    return [text for texts in rendered(programs["helm"], *EVERYTHING).values() for text in texts]


@pytest.mark.parametrize("version", VERSIONS)
def test_objects_are_valid_in_each_supported_version(conform, all_objects, version):
    ran = conform(version, "---\n".join(all_objects))

    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout
    assert f"Summary: {len(all_objects)} resources found" in ran.stdout


@pytest.mark.parametrize(
    ("field", "value"), [("replica", 2), ("replicas", "two"), ("selector", [])]
)
@pytest.mark.parametrize("version", [VERSIONS[0], VERSIONS[-1]])
def test_an_unknown_field_and_a_wrong_type_are_found(conform, version, field, value):
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "x"},
        "spec": {field: value},
    }

    ran = conform(version, yaml.safe_dump(deployment))

    assert ran.returncode == 1
    assert "Deployment x is invalid" in ran.stdout


def test_chart_passes_helm_lint(programs):
    argv = [programs["helm"], "lint", "--strict", str(CHART), f"--namespace={NAMESPACE}"]
    ran = subprocess.run(argv, capture_output=True, text=True, check=False)

    assert ran.returncode == 0, ran.stdout


@pytest.fixture(scope="module")
def prometheus_tool():
    return str(required(promtool))


@pytest.mark.parametrize("name", ["rules", "recording"])
def test_rules_for_prometheus_are_valid(programs, prometheus_tool, tmp_path, name):
    (text,) = rendered(programs["helm"], "--set=monitoring.alerts=true")[f"alerts/{name}.yaml"]
    spec = yaml.safe_load(text)["spec"]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(spec))

    argv = [prometheus_tool, "check", "rules", "--lint-fatal", str(tmp_path / "rules.yaml")]
    ran = subprocess.run(argv, capture_output=True, text=True, check=False)

    (group,) = spec["groups"]
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"SUCCESS: {len(group['rules'])} rules found" in ran.stdout


WARNING = 5
ACCEPTED = {
    "container-image-pull-policy": "a tag or a digest names one image",
    "container-ephemeral-storage-request-and-limit": "nothing is written: the root is read-only",
    "deployment-has-host-podantiaffinity": "topologySpreadConstraints do this",
    "deployment-replicas": "one standby is enough, since the other replicas are called first",
}
"""Checks of kube-score that do not apply, with the reasons."""
OF_THE_AGENT = {
    "container-security-context-privileged": "it opens device nodes",
    "container-security-context-user-group-id": "sockets of the kubelet belong to root",
}


def test_kube_score_has_no_other_finding(programs, all_objects):
    # A limit of CPU would delay admission, or cost a leader its Lease.
    options = ["--ignore-container-cpu-limit", "--output-format=json"]
    argv = [programs["kube-score"], "score", *options, "-"]
    text = "---\n".join(all_objects)
    ran = subprocess.run(argv, input=text, capture_output=True, text=True, check=False)
    found = {
        (check["check"]["id"], one["object_meta"]["name"])
        for one in json.loads(ran.stdout)
        for check in one["checks"]
        if not check["skipped"] and check["grade"] <= WARNING
    }

    agent = {(check, "linkwise-agent") for check in OF_THE_AGENT}
    assert {(check, name) for check, name in found - agent if check not in ACCEPTED} == set()
    # An entry that is no longer found is removed.
    assert {check for check, _ in found} == ACCEPTED.keys() | OF_THE_AGENT.keys()
    assert agent <= found
