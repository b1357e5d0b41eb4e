"""The manifests that the documents of ACK, ACS, NVIDIA and gpushare show, as people paste them.

Only the registries that images are drawn from differ: nothing is ever drawn.
"""

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
HPN_MODEL = """\
apiVersion: v1
kind: Pod
metadata:
  name: hpn-pod-with-driver
  labels:
    alibabacloud.com/compute-class: "gpu-hpn"
    alibabacloud.com/gpu-driver-version: "1.5.0"
spec:
  nodeSelector:
    alibabacloud.com/gpu-model-series: "example-model"
  containers:
  - name: tensorflow-mnist
    image: registry.example/tensorflow-mnist-sample:v1.5
    command: [sleep, infinity]
    resources:
      requests: {cpu: 1, memory: 1Gi, nvidia.com/gpu: 1}
      limits: {cpu: 1, memory: 1Gi, nvidia.com/gpu: 1}
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
TIME_SLICING = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: nvidia-device-plugin-config}
data:
  any: |-
    sharing:
      timeSlicing:
        renameByDefault: true
        failRequestsGreaterThanOne: true
        resources:
        - {name: nvidia.com/gpu, replicas: 4}
"""
