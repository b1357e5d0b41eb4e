"""Clusters of the dashboard's tests, as text."""

import re

from linkwise.manifest.objects import objects_in
from linkwise.views.files.cluster_file import collect_objects
from linkwise.views.files.current_cluster import CurrentCluster, current_cluster

CLUSTER = """
apiVersion: linkwise.dev/v1alpha1
kind: Cluster
nodes:
  - {name: dgx, count: 2, machine: dgx1-v100, mode: topology, cpu: 96, memory: 768Gi}
  - {name: share, machine: t4x4, mode: core_mem, gpuMemory: 15, used: [{gpu: 0, mem: 3}]}
"""
WAITING = """
---
apiVersion: v1
kind: Pod
metadata:
  name: NAME-0
  namespace: team
  creationTimestamp: "2026-11-22T10:00:00Z"
  annotations: {linkwise.dev/gang: NAME, linkwise.dev/gang-size: "1"}
spec:
  schedulingGates: [{name: linkwise.dev/gang}]
  containers: [{name: c, resources: {limits: {aliyun.com/gpu: GPUS}}}]
"""
PLACED = """
---
apiVersion: v1
kind: Pod
metadata:
  name: NAME
  uid: NAME
  namespace: team
  annotations:
    linkwise.dev/gang: GANG
    linkwise.dev/gang-size: "2"
    linkwise.dev/allocation: '{"v":1,"node":"NODE","gpus":[{"i":GPU}]}'
spec:
  nodeName: NODE
  containers: [{name: c, resources: {limits: {aliyun.com/gpu: 1}}}]
"""
JOB = """apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  parallelism: 2
  completions: 2
  completionMode: Indexed
  template:
    metadata: {annotations: {linkwise.dev/gang: train, linkwise.dev/gang-size: "2"}}
    spec:
      restartPolicy: Never
      containers: [{name: c, image: x, resources: {limits: {aliyun.com/gpu: GPUS}}}]
"""
WRONG = """apiVersion: v1
kind: Pod
metadata: {name: denied}
spec:
  containers:
  - name: c
    image: x
    resources:
      limits:
        aliyun.com/gpu-core.percentage: 7
"""


def waiting_pod(name: str, gpus: int) -> str:
    return WAITING.replace("NAME", name).replace("GPUS", str(gpus))


def placed_pod(name: str, gpu: int, gang: str = "vgg", node: str = "dgx-0") -> str:
    fields = {"NAME": name, "GPU": str(gpu), "GANG": gang, "NODE": node}
    return re.sub("NAME|GPU|GANG|NODE", lambda word: fields[word[0]], PLACED)


def owned(pod: str) -> str:
    """Return a pod that its controller would create again."""
    owner = "{apiVersion: apps/v1, kind: StatefulSet, name: s, uid: s, controller: true}"
    return pod.replace("namespace: team\n", f"namespace: team\n  ownerReferences: [{owner}]\n")


def urgent(pod: str) -> str:
    return pod.replace("spec:\n", "spec:\n  priority: 9\n")


def a_current(*pods: str) -> CurrentCluster:
    """Return the cluster with some pods."""
    objects = collect_objects(objects_in(CLUSTER + "".join(pods), "c.yaml"), "c.yaml")
    return current_cluster(objects, "default", "c.yaml")


def nodes_in(tree, tag: str, style: str = ""):
    """Return every element of a tag whose class begins with a style."""
    name, attributes, children = tree
    here = [tree] if name == tag and attributes.get("class", "").startswith(style) else []
    return here + [
        inner
        for child in children
        if isinstance(child, list)
        for inner in nodes_in(child, tag, style)
    ]
