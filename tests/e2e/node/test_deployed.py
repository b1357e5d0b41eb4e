"""The chart and the image on a real kubelet: each process of Linkwise runs in a pod."""

import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path

import pytest
import yaml
from controlplane.api import refusal
from controlplane.chart import CHART
from controlplane.chart_programs import chart_binaries
from controlplane.gangs import gang_labels
from controlplane.load import Load
from controlplane.manifests import NAMESPACE, NAMESPACES, ROOT
from controlplane.node.chain import Chain, container
from controlplane.node.deployed import (
    IMAGE,
    Deployment,
    chart_for,
    create_namespace,
    prepare,
    reachable,
)
from controlplane.node.gpus import StandInGPUs
from controlplane.node.machine import real_node
from controlplane.pods import Pods, a_pod, gates
from controlplane.process import wait_until
from controlplane.required import required
from nvml.standin import compiler
from support.printed import blocks

from linkwise.cluster import keys
from linkwise.topology import catalogue

VERSION = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
BEST_FOURS = ({0, 1, 2, 3}, {4, 5, 6, 7})
AGENT_PODS = f"{NAMESPACES}/{keys.AGENT}/pods"
IDS_OF_A_PLATFORM = (
    "--set=podSecurityContext.runAsUser=1000700000,podSecurityContext.fsGroup=1000700000,"
    "podSecurityContext.runAsGroup=0"
)
"""As OpenShift assigns them."""


@pytest.fixture(scope="module")
def plane(plane_with_services):
    return plane_with_services


@pytest.fixture(scope="module")
def helm():
    return required(chart_binaries)["helm"]


@pytest.fixture(scope="module")
def gpus():
    """The GPUs of the node, once it runs."""
    return []


@pytest.fixture(scope="module")
def deployment(plane, programs_of_node, image, helm, gpus, tmp_path_factory):
    if compiler() is None:
        pytest.skip("needs gcc")
    labels = {keys.NODE_MODE: "topology", keys.RESOURCE_NAME: "nvidia.com-gpu"}
    service = plane.api.get(f"{NAMESPACES}/default/services/kubernetes")["spec"]
    services = str(ip_network(f"{service['clusterIP']}/27", strict=False))
    with real_node(plane, programs_of_node, "real", labels, services) as node:
        gpus.append(StandInGPUs(node.root, catalogue.entry("dgx1-v100").machine))
        prepare(node, gpus[0])
        node.import_image(image.archive, IMAGE)
        chart = chart_for(gpus[0], tmp_path_factory.mktemp("chart"))
        with reachable(plane, node):
            create_namespace(plane.api)
            running = Deployment(plane, node, helm, chart)
            running.install()
            yield running


@pytest.fixture
def chain(deployment, gpus, namespace):
    found = Chain(Pods(deployment.api, namespace), deployment.node, gpus[0], None, None)
    wait_until(lambda: found.allocatable(keys.NVIDIA_GPU) == 8, "the node offers its GPUs", 120)
    yield found
    found.delete(*found.pods.all())


@pytest.fixture
def load(deployment, namespace):
    """Clients that let pods with GPUs be reviewed, and store none."""
    path = f"{NAMESPACES}/{namespace}/pods?dryRun=All"
    return Load(deployment.api, path, lambda i: a_pod(f"load-{i}", {keys.GPU_WHOLE: 1}), clients=2)


def conditions(pod):
    return {one["type"]: one["status"] for one in pod["status"]["conditions"]}


def test_each_process_runs_from_the_image_and_is_ready(deployment):
    wait_until(
        lambda: conditions(deployment.api.get(AGENT_PODS)["items"][0])["Ready"] == "True",
        "the agent is ready",
        120,
    )

    pods = [*deployment.pods(), *deployment.api.get(AGENT_PODS)["items"]]

    names = Counter(each["spec"]["containers"][0]["name"] for each in pods)
    # The standby is a webhook, too.
    assert names == {"agent": 1, "certs": 2, "scorer": 2, "webhook": 3}
    images = {one["image"] for each in pods for one in each["spec"]["containers"]}
    assert images == {f"{IMAGE}:{VERSION}"}


def test_all_but_the_agent_run_under_restricted_pod_security(deployment):
    namespace = deployment.api.get(f"{NAMESPACES}/{NAMESPACE}")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    for pod in deployment.pods():
        security = pod["spec"]["containers"][0]["securityContext"]
        assert security["readOnlyRootFilesystem"]
        assert pod["spec"]["securityContext"]["runAsUser"] == 65532


def test_namespace_of_the_servers_refuses_the_pod_of_the_agent(deployment):
    [agent] = deployment.api.get(AGENT_PODS)["items"]
    spec = {**agent["spec"], "serviceAccountName": "linkwise-certs"}
    del spec["serviceAccount"], spec["nodeName"]
    body = {"metadata": {"name": "agent"}, "spec": spec}
    pods = f"{NAMESPACES}/{NAMESPACE}/pods"

    refused = refusal(lambda: deployment.api.create(pods, body, dryRun="All"))

    assert 'violates PodSecurity "restricted' in refused


def commands_of_the_readme(plane, folder):
    """Run what the README prints after the installation; its image is one that the node has."""
    demo = folder / "docs/demo/statefulset.yaml"
    demo.parent.mkdir(parents=True)
    workload = yaml.safe_load((ROOT / demo.relative_to(folder)).read_text())
    [main] = workload["spec"]["template"]["spec"]["containers"]
    main |= {key: container()[key] for key in ("image", "command")}
    # Its process ignores SIGTERM.
    workload["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 1
    demo.write_text(yaml.safe_dump(workload))
    (block,) = [text for text in blocks("README.md") if "rollout status statefulset" in text]
    folders = (Path(plane.site.binaries["kubectl"]).parent, Path(sys.executable).parent)
    path = ":".join((*map(str, folders), os.environ["PATH"]))
    environment = {**os.environ, "KUBECONFIG": str(plane.kubeconfig), "PATH": path}
    shell = ["bash", "-e", "-c", block]
    return subprocess.run(
        shell, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_gang_of_the_readme_runs_and_each_container_sees_its_gpu(chain, plane, tmp_path):
    ran = commands_of_the_readme(plane, tmp_path)

    home = replace(chain, pods=Pods(plane.api, "default"))
    seen = {f"trainer-{i}": home.has(f"trainer-{i}", "worker") for i in range(4)}
    recorded = {name: home.recorded(name) for name in seen}
    plane.kubectl("delete", "statefulset/trainer")
    home.delete(*seen)

    assert (ran.returncode, ran.stderr) == (0, "")
    assert "placed gang default/trainer on real" in ran.stdout
    assert [len(held) for held in seen.values()] == [1, 1, 1, 1]
    assert set().union(*seen.values()) in BEST_FOURS
    assert seen == recorded


def test_invalid_pod_is_denied_by_the_webhook_behind_its_service(deployment, namespace):
    pods = Pods(deployment.api, namespace)

    refused = pods.refusal({keys.GPU_MEM: 2, keys.GPU_CORE: 22})

    assert "[LW101]" in refused


def test_rolling_restart_fails_no_creation(deployment, load):
    before = {pod["metadata"]["uid"] for pod in deployment.pods()}

    with load:
        load.goes_on()
        deployment.restart("certs", "webhook", "webhook-standby", "scorer")
        load.goes_on()

    assert load.failed == []
    assert not before & {pod["metadata"]["uid"] for pod in deployment.pods()}


def test_helm_upgrade_fails_no_creation(deployment, load, chain):
    chain.create("stays", container({keys.NVIDIA_GPU: 1}))
    held = chain.has("stays")

    with load:
        load.goes_on()
        deployment.upgrade("--set=logLevel=debug", IDS_OF_A_PLATFORM)
        load.goes_on()

    assert load.failed == []
    chain.create("next", container({keys.NVIDIA_GPU: 1}))
    assert chain.has("next").isdisjoint(held)


def test_helm_test_asks_from_a_pod_of_the_image(deployment):
    deployment.test()


def test_rotation_of_the_ca_fails_no_creation(deployment, load):
    before = deployment.trusted()
    secret = ("secret", "linkwise-ca", "linkwise.dev/rotate=now")

    with load:
        load.goes_on()
        asked = deployment.plane.kubectl("--namespace", NAMESPACE, "annotate", *secret)
        assert asked.returncode == 0, asked.stderr
        wait_until(lambda: before.isdisjoint(deployment.trusted()), "a new CA alone", 300)
        load.goes_on()

    assert load.failed == []


def test_helm_uninstall_releases_pods_that_wait(deployment, namespace):
    pods = Pods(deployment.api, namespace)
    pods.create({keys.GPU_WHOLE: 1}, name="waits", labels=gang_labels("incomplete", 2))
    assert gates(pods.all()["waits"]) == [keys.GANG]

    deployment.uninstall()

    assert gates(pods.all()["waits"]) == []
    deployments = deployment.api.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments")
    assert deployments["items"] == []
    pods.create({keys.GPU_WHOLE: 1}, name="later")
