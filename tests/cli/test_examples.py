"""The manifests that the documents of ACK, ACS, NVIDIA and gpushare show, as people paste them."""

import json

import pytest

COMPUTE_SHARE = """\
apiVersion: batch/v1
kind: Job
metadata: {name: cuda-sample}
spec:
  parallelism: 1
  template:
    metadata: {labels: {app: cuda-sample}}
    spec:
      restartPolicy: Never
      containers:
      - name: cuda-sample
        image: registry.example/gpushare-sample:benchmark-tensorflow-2.2.3
        command: [bash, run.sh, --num_batches=500000000, --batch_size=8]
        workingDir: /root
        resources: {limits: {aliyun.com/gpu-mem: 2, aliyun.com/gpu-core.percentage: 30}}
"""
MODEL_AND_DRIVER = """\
apiVersion: v1
kind: Pod
metadata:
  name: gpu-pod-with-model-and-driver
  labels:
    alibabacloud.com/compute-class: "gpu"
    alibabacloud.com/gpu-model-series: "example-model"
    alibabacloud.com/gpu-driver-version: "535.161.08"
spec:
  containers:
  - name: tensorflow-mnist
    image: registry.example/tensorflow-mnist-sample:v1.5
    command: [sleep, infinity]
    resources:
      requests: {cpu: 1, memory: 1Gi, nvidia.com/gpu: 1}
      limits: {cpu: 1, memory: 1Gi, nvidia.com/gpu: 1}
"""
PROFILE = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: acs-profile, namespace: kube-system}
data:
  selectors: |
    [{"name": "gpu-hpn-driver",
      "objectSelector": {"matchLabels": {"alibabacloud.com/compute-class": "gpu-hpn"}},
      "effect": {"labels": {"alibabacloud.com/gpu-driver-version": "1.5.0"}}}]
"""
HPN = """\
apiVersion: v1
kind: Pod
metadata: {name: hpn, labels: {alibabacloud.com/compute-class: gpu-hpn}}
spec: {containers: [{name: c, resources: {limits: {nvidia.com/gpu: 8}}}]}
"""
ARENA = """\
apiVersion: kubeflow.org/v1alpha1
kind: MPIJob
metadata: {name: pytorch-topo-4-vgg16, labels: {app: mpijob, release: pytorch-topo-4-vgg16}}
spec:
  replicas: 4
  cleanPodPolicy: Running
  template:
    metadata:
      name: pytorch-topo-4-vgg16
      labels:
        app: mpijob
        release: pytorch-topo-4-vgg16
        pod-group.scheduling.sigs.k8s.io/name: mpijob-pytorch-topo-4-vgg16
        pod-group.scheduling.sigs.k8s.io/min-available: "4"
        gpu-topology: pytorch-topo-4-vgg16
        gpu-topology-replica: "4"
      annotations: {requestGPUsOfJobOwner: "4"}
    spec:
      hostNetwork: true
      dnsPolicy: ClusterFirstWithHostNet
      containers:
      - name: mpi
        image: registry.example/pytorch-benchmark
        command: [sh, -c, "mpirun python train.py --model=vgg16 --batch-size=64"]
        env: [{name: workers, value: "4"}, {name: gpus, value: "1"}]
        resources: {requests: {aliyun.com/gpu: 1}, limits: {aliyun.com/gpu: 1}}
"""
GPUSHARE = """\
apiVersion: v1
kind: Pod
metadata: {name: gpushare-test-pod}
spec:
  restartPolicy: OnFailure
  containers:
  - name: gpushare-test-pod
    image: cheyang/gpu-player:v2
    env: [{name: NVIDIA_VISIBLE_DEVICES, value: "all"}]
    resources: {limits: {aliyun.com/gpu-mem: 5}}
"""


@pytest.fixture
def check(linkwise, write):
    def check_text(text, *arguments):
        write("job.yaml", text)
        code, out, err = linkwise("check", "job.yaml", *arguments, "-o", "json")
        assert err == ""
        return code, json.loads(out)

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


def test_a_profile_adds_its_driver_unless_the_pod_says_otherwise(check, write):
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
