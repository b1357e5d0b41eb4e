"""The chart and the manifests have the same objects; values that cannot work are refused."""

import os
import re
import subprocess

import pytest
import yaml
from controlplane.binaries import binaries
from controlplane.chart import CHART, RenderError, rendered
from controlplane.chart_objects import by_identity
from controlplane.manifests import NAMESPACE, ROOT

from scorer.withdraw.withdrawal import OTHERS, REJECTING

MANIFESTS = ROOT / "manifests"
PROFILES = CHART / "profiles"
NO_AGENT = "--set=agent.enabled=false"
IMAGE = "--set=image.repository=registry.example/linkwise,image.tag=1.2.3"
SCHEDULER_IMAGE = "scheduler.image.repository=registry.example/kube-scheduler"
SCHEDULER = f"--set=scheduler.enabled=true,scheduler.image.tag=v1.36.3,{SCHEDULER_IMAGE}"
IMAGES = """\
images:
  - {name: linkwise, newName: registry.example/linkwise, newTag: 1.2.3}
  - {name: kube-scheduler, newName: registry.example/kube-scheduler, newTag: v1.36.3}
"""
OF_NO_FILE = "Namespace", None, NAMESPACE
"""Helm creates the namespace of a release itself."""


@pytest.fixture(scope="module")
def kustomized(tmp_path_factory):
    kubectl = binaries(print)["kubectl"]

    def objects(*folders):
        own = tmp_path_factory.mktemp("own")
        listed = "".join(f"  - {os.path.relpath(MANIFESTS / one, own)}\n" for one in folders)
        (own / "kustomization.yaml").write_text(f"resources:\n{listed}{IMAGES}")
        argv = [kubectl, "kustomize", str(own)]
        ran = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        return by_identity(list(yaml.safe_load_all(ran.stdout)))

    return objects


@pytest.mark.parametrize(
    ("folders", "options"),
    [
        pytest.param(["base"], [NO_AGENT], id="base"),
        pytest.param(["base", "agent"], [], id="with the agent"),
        pytest.param(["scheduler"], [NO_AGENT, SCHEDULER], id="scheduler"),
        pytest.param(
            ["cert-manager"], [NO_AGENT, "--set=certs.mode=cert-manager"], id="cert-manager"
        ),
        pytest.param(
            ["provided-certificates"], [NO_AGENT, "--set=certs.mode=provided"], id="provided"
        ),
        pytest.param(
            ["dashboard"], [NO_AGENT, "--set=dashboard.enabled=true"], id="with the dashboard"
        ),
        pytest.param(
            ["profiles-all"], [NO_AGENT, "--set=policy.profilesAll=true"], id="profiles-all"
        ),
    ],
)
def test_chart_and_kustomize_render_the_same_objects(chart, kustomized, folders, options):
    expected = kustomized(*folders)
    assert expected.pop(OF_NO_FILE)

    found = chart(IMAGE, *options)

    assert found.keys() == expected.keys()
    for identity, one in found.items():
        assert one == expected[identity], identity


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        ("policy.gangs.ageingMinutes=-1", "at '/policy/gangs/ageingMinutes': minimum: got -1"),
        ("policy.ganks.ageingMinutes=1", "additional properties 'ganks' not allowed"),
        ("policy.placement.mode=scheduler", "the chart writes it as scheduler.enabled says"),
        ("policy.placement.schedulerName=own", "know only the name linkwise"),
        ("scheduler.enabled=true", "name the image of kube-scheduler"),
        ("image.digest=sha256:12", "at '/image/digest'"),
        ("dashboard.hosts={https://gpus.example}", "at '/dashboard/hosts/0'"),
        ("webhook.replicas=0", "at '/webhook/replicas'"),
        ("networkPolicy.apiServerPorts=", "at '/networkPolicy/apiServerPorts'"),
        ("replicas=2", "additional properties 'replicas' not allowed"),
    ],
)
def test_values_that_cannot_work_are_refused_with_their_place(chart, option, problem):
    with pytest.raises(RenderError, match=re.escape(problem)):
        chart(f"--set={option}")


def test_another_namespace_is_refused(programs):
    argv = (programs["helm"], "template", str(CHART), "--namespace=other")
    ran = subprocess.run(argv, capture_output=True, text=True, check=False)

    assert "install Linkwise into the namespace linkwise-system" in ran.stderr


def containers(objects):
    for one in objects.values():
        if one["kind"] in {"Deployment", "DaemonSet"}:
            yield from one["spec"]["template"]["spec"]["containers"].items()


def test_values_reach_every_component(chart):
    found = chart(
        "--set=image.repository=registry.example/linkwise,image.tag=1.2.3",
        f"--set=image.digest=sha256:{'a' * 64}",
        "--set=imagePullSecrets[0].name=mine,logLevel=debug,spread=DoNotSchedule",
        "--set=nodeSelector.pool=system,tolerations[0].operator=Exists",
        "--set=networkPolicy.apiServerPorts={16443}",
    )

    for _, container in containers(found):
        assert container["image"] == f"registry.example/linkwise@sha256:{'a' * 64}"
        assert container["env"]["LINKWISE_LOG_LEVEL"]["value"] == "debug"
    for (kind, *_), one in found.items():
        if kind == "NetworkPolicy":
            assert {port["port"] for rule in one["spec"]["egress"] for port in rule["ports"]} <= {
                16443,
                8445,
            }
        elif kind == "Deployment":
            pod = one["spec"]["template"]["spec"]
            assert (pod["nodeSelector"], pod["tolerations"]) == (
                {"pool": "system"},
                [{"operator": "Exists"}],
            )
            assert pod["topologySpreadConstraints"][0]["whenUnsatisfiable"] == "DoNotSchedule"
        if kind in {"Deployment", "DaemonSet"}:
            assert list(one["spec"]["template"]["spec"]["imagePullSecrets"]) == ["mine"]


def test_policy_of_the_values_is_the_one_that_is_stored(chart):
    found = chart('--set-json=policy={"capacity": "deny", "gangs": {"ageingMinutes": 5}}')

    policy = found["ConfigMap", NAMESPACE, "linkwise"]["data"]["policy.yaml"]
    assert policy == {
        "apiVersion": "linkwise.dev/v1alpha1",
        "kind": "Policy",
        "capacity": "deny",
        "gangs": {"ageingMinutes": 5},
    }


def test_job_of_uninstall_may_delete_what_the_emergency_stop_deletes_and_patch_pods(programs):
    found = rendered(programs["helm"])
    roles = [yaml.safe_load(text) for text in found["uninstall.yaml"]]
    (role,) = [one for one in roles if one["kind"] == "ClusterRole"]
    *deletions, release = role["rules"]
    stopped = {
        (f"{re.sub('y$', 'ie', one['kind'].lower())}s", one["metadata"]["name"])
        for texts in found.values()
        for one in map(yaml.safe_load, texts)
        if "admissionregistration" in one["apiVersion"]
        and one["metadata"].get("labels", {}).get("app.kubernetes.io/name") == "linkwise"
        and one["metadata"]["labels"].get("app.kubernetes.io/component") != "fence"
    }

    assert stopped == {*REJECTING, *OTHERS}
    assert stopped <= {
        (resource, name)
        for rule in deletions
        for resource in rule["resources"]
        for name in rule.get("resourceNames", ())
    }
    assert (release["resources"], release["verbs"]) == (["pods"], ["list", "patch"])
    for one in roles:
        assert one["metadata"]["annotations"]["helm.sh/hook"] == "pre-delete"


def test_profile_of_managed_clusters_has_gates_only(chart):
    found = chart(f"--values={PROFILES / 'managed.yaml'}")

    assert "DaemonSet" not in {kind for kind, *_ in found}
    assert {name for name, _ in containers(found)} == {"webhook", "certs", "scorer"}
    assert "placement" not in found["ConfigMap", NAMESPACE, "linkwise"]["data"]["policy.yaml"]
    assert not [name for *_, name in found if "scheduler" in name]


def test_profile_with_a_scheduler_has_one_beside_the_scorer(chart):
    found = chart(f"--values={PROFILES / 'scheduler.yaml'}", f"--set={SCHEDULER_IMAGE}")

    scheduler = dict(containers(found))["scheduler"]
    version = scheduler["image"].removeprefix("registry.example/kube-scheduler:")
    assert re.fullmatch(r"v1[.]\d+[.]\d+", version)
    policy = found["ConfigMap", NAMESPACE, "linkwise"]["data"]["policy.yaml"]
    assert policy["placement"] == {"mode": "scheduler"}


def test_profile_of_high_availability_spreads_three_replicas(chart):
    found = chart(f"--values={PROFILES / 'ha.yaml'}")

    for (kind, _, name), one in found.items():
        if kind == "Deployment":
            assert one["spec"]["replicas"] == (1 if name.endswith("standby") else 3)
            (spread,) = one["spec"]["template"]["spec"]["topologySpreadConstraints"]
            assert spread["whenUnsatisfiable"] == "DoNotSchedule"


def test_profile_of_cert_manager_has_its_objects_and_no_ca_of_ours(chart):
    found = chart(f"--values={PROFILES / 'cert-manager.yaml'}")

    (certs,) = (one for name, one in containers(found) if name == "certs")
    assert certs["env"]["LINKWISE_CERTIFICATES"]["value"] == "cert-manager"
    assert {"Certificate", "Issuer"} <= {kind for kind, *_ in found}


def test_notes_have_the_next_three_commands(programs):
    argv = (programs["helm"], "install", "mine", str(CHART), f"--namespace={NAMESPACE}")
    options = ("--dry-run=client", IMAGE)
    ran = subprocess.run(
        (*argv, *options),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "KUBECONFIG": os.devnull},
    )

    _, _, notes = ran.stdout.partition("NOTES:\n")
    assert re.findall(r"^  (.*)", notes, re.MULTILINE) == [
        f"kubectl -n {NAMESPACE} rollout status deployment/linkwise-webhook"
        " deployment/linkwise-scorer",
        f"helm test mine --namespace {NAMESPACE} --logs",
        "kubectl get gangs --all-namespaces",
    ]
