"""The manifests that the documents of ACK, ACS, NVIDIA and gpushare show, as people paste them."""

import json
from pathlib import Path

import pytest
from support.builders import topology_map
from support.documents import ARENA, COMPUTE_SHARE, GPUSHARE, HPN, MODEL_AND_DRIVER, PROFILE
from support.fleet_map import text_of_map

from linkwise.cluster.nodes.topology_configmap import PublishedTopology
from linkwise.topology.catalogue import entry

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"


@pytest.fixture
def check(linkwise, write):
    def check_text(text, *arguments):
        write("job.yaml", text)
        code, out, err = linkwise("check", "job.yaml", *arguments, "-o", "json")
        assert err == ""
        return code, json.loads(out)["items"]

    return check_text


def codes(entry):
    return [finding["code"] for finding in entry["findings"]]


def test_a_compute_share_goes_to_the_nodes_that_give_out_compute(check):
    code, (job,) = check(COMPUTE_SHARE)

    assert (code, job["verdict"]) == (0, "allowed")
    assert '"ack.node.gpu.schedule", "operator": "In", "values": ["core_mem"]' in json.dumps(
        job["patched"]["spec"]["affinity"]
    )


def test_a_compute_share_of_32_percent_is_refused(check):
    code, (job,) = check(COMPUTE_SHARE.replace("percentage: 30", "percentage: 32"))

    assert (code, codes(job)) == (1, ["LW101"])


def test_the_placeholder_model_is_refused_with_the_list_and_t4_is_allowed(check):
    code, (pod,) = check(MODEL_AND_DRIVER)
    assert (code, codes(pod)) == (1, ["LW203"])
    assert "T4" in pod["findings"][0]["message"]
    assert "placeholder" in pod["findings"][0]["message"]

    assert check(MODEL_AND_DRIVER.replace("example-model", "T4"))[0] == 0


def test_profile_adds_driver_unless_the_pod_sets_it(check, write):
    write("profile.yaml", PROFILE)
    driver = "alibabacloud.com/gpu-driver-version"

    _, (added,) = check(HPN, "--profile", "profile.yaml")
    assert added["patched"]["metadata"]["labels"][driver] == "1.5.0"

    own = HPN.replace("gpu-hpn}", f"gpu-hpn, {driver}: 1.5.4}}")
    _, (kept,) = check(own, "--profile", "profile.yaml")
    assert kept["patched"]["metadata"]["labels"][driver] == "1.5.4"
    assert kept["profiles"][0]["kept"] == [f"metadata.labels[{driver}]"]


def test_arenas_workers_wait_as_a_gang_and_its_launcher_does_not(check):
    code, (launcher, worker) = check(ARENA)

    assert code == 0
    assert "schedulingGates" not in launcher["patched"]["spec"]
    assert worker["patched"]["spec"]["schedulingGates"] == [{"name": "linkwise.dev/gang"}]
    assert worker["request"] == {"family": "whole", "gpus": 1, "memory": 0, "core": 0}
    (container,) = launcher["patched"]["spec"]["containers"]
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in container["env"]
    assert "resources" not in container


def test_gpushares_pod_sees_only_its_own_card(check):
    code, (pod,) = check(GPUSHARE)

    assert (code, codes(pod)) == (0, ["LW113"])
    environment = {one["name"]: one for one in pod["patched"]["spec"]["containers"][0]["env"]}
    assert "value" not in environment["NVIDIA_VISIBLE_DEVICES"]
    assert environment["ALIYUN_COM_GPU_MEM_CONTAINER"]["value"] == "5"


@pytest.fixture
def claims_cluster(write):
    """Write the cluster file with a claims node; return a function that changes a part of it."""
    text = (EXAMPLES / "claims-cluster.yaml").read_text()

    def write_changed(old="", new=""):
        assert old in text
        return write("cluster.yaml", text.replace(old, new))

    return write_changed


def test_a_claims_node_is_read_from_its_slice(linkwise, claims_cluster):
    claims_cluster()
    [node] = json.loads(linkwise("inspect", "--cluster", "cluster.yaml", "-o", "json").out)["nodes"]

    assert (node["mode"], node["pool"], node["missing"]) == ("topology", "claims-0", None)
    assert (node["machine_source"], node["gpus_free"]) == ("catalogue", 7)
    assert [device["device"] for device in node["devs"]] == [f"gpu-{i}" for i in range(8)]
    assert [device["id"] for device in node["devs"] if device["claimed"]] == [5]

    text = linkwise("inspect", "--cluster", "cluster.yaml").out
    source = "identified by the product and number of GPUs in ResourceSlices"
    assert f"topology by claims, NVIDIA H100 80GB HBM3, NVSwitch {source}" in text
    assert "held by a claim" in text
    shown = linkwise("topology", "show", "--node", "claims-0", "--cluster", "cluster.yaml").out
    assert shown.endswith(f"Source: {source}\n")
    page = linkwise("inspect", "--cluster", "cluster.yaml", "-o", "html").out
    assert "1 GPU held by claims" in text_of_map(page)


def test_an_incomplete_pool_gives_no_gpus_with_the_reason(linkwise, claims_cluster):
    claims_cluster("resourceSliceCount: 1", "resourceSliceCount: 2")
    reason = "the driver's slices are incomplete: 1 of 2 are there"

    [node] = json.loads(linkwise("inspect", "--cluster", "cluster.yaml", "-o", "json").out)["nodes"]
    assert (node["pool"], node["missing"], node["gpus_free"]) == ("claims-0", reason, 0)
    text = linkwise("inspect", "--cluster", "cluster.yaml").out
    assert "0 GPUs, none is offered" in text
    assert f"not offered {reason}" in text
    page = linkwise("inspect", "--cluster", "cluster.yaml", "-o", "html").out
    assert "nothing new is placed here" in text_of_map(page)


def test_a_captured_machine_of_a_claims_node_is_not_that_of_an_agent(linkwise, claims_cluster):
    published = PublishedTopology(entry("hgx-h200").machine, (True,) * 8)
    captured = f"  - {json.dumps(topology_map('claims-0', published))}\n"
    claims_cluster("items:\n", f"items:\n{captured}")
    cluster = ("--cluster", "cluster.yaml")

    source = "captured in a ConfigMap of the node"
    assert source in linkwise("inspect", *cluster).out
    shown = linkwise("topology", "show", "--node", "claims-0", *cluster).out
    assert f"Source: {source}\n" in shown


def test_links_by_slices_alone_are_said(linkwise, claims_cluster):
    claims_cluster("NVIDIA H100 80GB HBM3", "NVIDIA X1")
    cluster = ("--cluster", "cluster.yaml")

    source = "those of PCIe and NUMA in ResourceSlices: NVLinks are unknown"
    assert source in linkwise("inspect", *cluster).out
    shown = linkwise("topology", "show", "--node", "claims-0", *cluster).out
    assert f"Source: {source}\n" in shown


@pytest.mark.parametrize(
    ("gpus", "code", "words"),
    [
        (3, 0, "one  claims-0  0 1 2"),
        (8, 1, "Needs 8 GPUs on one node; the freest suitable node has 7"),
    ],
    ids=["fits", "waits for the claim of another pod"],
)
def test_a_pod_is_placed_by_claim(linkwise, write, claims_cluster, gpus, code, words):
    claims_cluster()
    limits = {"nvidia.com/gpu": gpus}
    containers = [{"name": "c", "image": "i", "resources": {"limits": limits}}]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}}
    write("pod.json", json.dumps({**pod, "spec": {"containers": containers}}))

    ran = linkwise("simulate", "pod.json", "--cluster", "cluster.yaml")

    assert (ran.code, words in ran.out, "never" in ran.out) == (code, True, False)


def test_nothing_is_placed_on_an_incomplete_pool(linkwise, write, claims_cluster):
    claims_cluster("resourceSliceCount: 1", "resourceSliceCount: 2")
    limits = {"nvidia.com/gpu": 1}
    containers = [{"name": "c", "image": "i", "resources": {"limits": limits}}]
    labels = {"linkwise.dev/claims": "true"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one", "labels": labels}}
    write("pod.json", json.dumps({**pod, "spec": {"containers": containers}}))

    out = linkwise("simulate", "pod.json", "--cluster", "cluster.yaml").out

    assert "GPUs missing in the driver's slices for now" in out


TEMPLATED = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: two-gpus}
spec:
  spec:
    devices:
      requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com, count: 2}}]
---
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: bert}
spec:
  pytorchReplicaSpecs:
    Master: &role
      replicas: 1
      template:
        spec:
          resourceClaims: [{name: gpus, resourceClaimTemplateName: two-gpus}]
          containers: [{name: pytorch, image: i, resources: {claims: [{name: gpus}]}}]
    Worker: {<<: *role, replicas: 2}
"""
TEMPLATES_AUTO = "placement: {templates: auto}\ngangs: {kinds: [PyTorchJob]}\n"


def test_a_gang_with_templates_is_placed_as_a_whole(linkwise, write, claims_cluster):
    claims_cluster()
    write("job.yaml", TEMPLATED)
    write("policy.yaml", TEMPLATES_AUTO)
    options = ("job.yaml", "--cluster", "cluster.yaml", "--policy", "policy.yaml")

    ran = linkwise("simulate", *options)
    checked = json.loads(linkwise("check", *options, "-o", "json").out)["items"]

    assert ran.code == 0, ran.out
    assert "bert" in ran.out
    assert [one["request"]["gpus"] for one in checked] == [2, 2]
    assert not any("claim" in one or one["findings"] for one in checked)
    annotations = checked[0]["patched"]["metadata"]["annotations"]
    assert annotations["linkwise.dev/claimed-gpus"] == '{"gpus/gpu":2}'


@pytest.mark.parametrize(
    ("attribute", "code", "words"),
    [
        ("gpu.nvidia.com/productName", 0, "GB/s"),
        ("gpu.nvidia.com/uuid", 1, "no free set for which the constraints of the claim hold"),
    ],
)
def test_a_gang_whose_template_has_a_constraint_is_placed_where_it_holds(
    linkwise, write, claims_cluster, attribute, code, words
):
    claims_cluster()
    constraint = f"      constraints: [{{matchAttribute: {attribute}}}]\n---"
    write("job.yaml", TEMPLATED.replace("---", constraint, 1))
    write("policy.yaml", TEMPLATES_AUTO)

    ran = linkwise("simulate", "job.yaml", "--cluster", "cluster.yaml", "--policy", "policy.yaml")

    assert ran.code == code, ran.out
    assert words in " ".join(ran.out.split())


def test_what_is_left_to_the_scheduler_is_said_with_the_reason(linkwise, write, claims_cluster):
    claims_cluster()
    write("job.yaml", TEMPLATED.replace("count: 2", "allocationMode: All"))
    write("policy.yaml", TEMPLATES_AUTO)

    out = linkwise("check", "job.yaml", "--cluster", "cluster.yaml", "--policy", "policy.yaml").out

    assert "LW125" in out
    assert "template two-gpus: request 'gpu' has allocationMode 'All'" in " ".join(out.split())
