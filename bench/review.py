"""The AdmissionReview that admission is measured with: a gang's worker, as an API server sends it.

6.6 KB, the size of a real one: a training pod with two containers, a service account's volume, the
default tolerations and the fields' managers.
"""

import json
from collections.abc import Callable
from typing import Any

from cluster.keys import (
    GPU_TOPOLOGY,
    GPU_TOPOLOGY_REPLICA,
    GPU_WHOLE,
    JOB_NAME,
    JOB_ROLE,
    POD_GROUP_MIN_AVAILABLE,
    POD_GROUP_NAME,
    REPLICA_INDEX,
)

SIZE = 6600
"""[bytes]"""

_OWNED = {".": {}, "f:name": {}, "f:value": {}}


def worker() -> dict[str, Any]:
    """Return the pod: worker 3 of a gang of 4, one GPU each."""
    name = "pytorch-topo-4-vgg16"
    labels = {
        "app": "mpijob",
        "release": name,
        GPU_TOPOLOGY: name,
        GPU_TOPOLOGY_REPLICA: "4",
        POD_GROUP_NAME: name,
        POD_GROUP_MIN_AVAILABLE: "4",
        JOB_NAME: name,
        JOB_ROLE: "worker",
        REPLICA_INDEX: "3",
    }
    owner = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "MPIJob",
        "name": name,
        "uid": "5b2b1f5e-6d39-4f7a-9a53-0b6f6d5f2a10",
        "controller": True,
        "blockOwnerDeletion": True,
    }
    spec = _spec(name)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{name}-worker-3",
            "namespace": "vision",
            "creationTimestamp": None,
            "labels": labels,
            "annotations": {"kubectl.kubernetes.io/default-container": "mpi"},
            "ownerReferences": [owner],
            "managedFields": [_managed_fields(spec)],
        },
        "spec": spec,
        "status": {},
    }


def body(pod: dict[str, Any] | None = None, *, size: int = SIZE) -> bytes:
    """Return an AdmissionReview for the creation of a pod, filled up to `size` bytes.

    The filler is an annotation that nobody reads; the sample above needs 0.2 KB of it.
    """
    pod = pod or worker()
    text = _review(pod)
    metadata = pod["metadata"]
    missing = size - len(text)
    if missing > 32:
        metadata["annotations"]["example.org/notes"] = "n" * (missing - 23)
        text = _review(pod)
    return text


def measured(admit: Callable[[bytes], bytes]) -> Callable[[], bytes]:
    """Return what a timer calls: `admit` on the review."""
    review = body()
    return lambda: admit(review)


def _review(pod: dict[str, Any]) -> bytes:
    request = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "requestKind": {"group": "", "version": "v1", "kind": "Pod"},
        "requestResource": {"group": "", "version": "v1", "resource": "pods"},
        "name": "pytorch-topo-4-vgg16-worker-3",
        "namespace": "vision",
        "operation": "CREATE",
        "userInfo": {
            "username": "system:serviceaccount:kubeflow:training-operator",
            "uid": "9f0b7d0e-2c7b-4d53-8a42-9e4d7b1c6a55",
            "groups": ["system:serviceaccounts", "system:authenticated"],
        },
        "object": pod,
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    review = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}
    return json.dumps(review, separators=(",", ":")).encode()


def _spec(name: str) -> dict[str, Any]:
    token = {
        "name": "kube-api-access-7x2lm",
        "mountPath": "/var/run/secrets/kubernetes.io",
        "readOnly": True,
    }
    shared = {"name": "shm", "mountPath": "/dev/shm"}  # noqa: S108 (a path inside the container)
    config = {"name": "mpi-job-config", "mountPath": "/etc/mpi"}
    data = {"name": "data", "mountPath": "/data"}
    env = [
        {"name": "NCCL_DEBUG", "value": "INFO"},
        {"name": "NCCL_IB_DISABLE", "value": "0"},
        {"name": "NCCL_SOCKET_IFNAME", "value": "eth0"},
        {"name": "NCCL_IB_HCA", "value": "mlx5_0,mlx5_1"},
        {"name": "NCCL_IB_GID_INDEX", "value": "3"},
        {"name": "OMP_NUM_THREADS", "value": "8"},
        {"name": "OMPI_MCA_orte_keep_fqdn_hostnames", "value": "true"},
        {"name": "OMPI_MCA_plm_rsh_args", "value": "-o ConnectionAttempts=10"},
        {"name": "PYTHONUNBUFFERED", "value": "1"},
        {"name": "TORCH_HOME", "value": "/data/torch"},
        {"name": "K_MPI_JOB_ROLE", "value": "worker"},
        {
            "name": "POD_IP",
            "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}},
        },
    ]
    probe = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
    key = {"name": "ssh-auth", "mountPath": "/root/.ssh", "readOnly": True}
    return {
        "initContainers": [
            {
                "name": "prepare-ssh",
                "image": "registry.example.org/training/ssh:1.2",
                "command": [
                    "/bin/sh",
                    "-c",
                    "cp -RL /mnt/ssh/* /root/.ssh && chmod -R 600 /root/.ssh",
                ],
                "resources": {
                    "limits": {"cpu": "100m", "memory": "64Mi"},
                    "requests": {"cpu": "100m", "memory": "64Mi"},
                },
                "volumeMounts": [key, token],
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "imagePullPolicy": "IfNotPresent",
            }
        ],
        "volumes": [
            {
                "name": "ssh-auth",
                "secret": {
                    "secretName": f"{name}-ssh",
                    "items": [
                        {"key": "ssh-privatekey", "path": "id_rsa"},
                        {"key": "ssh-publickey", "path": "id_rsa.pub"},
                        {"key": "ssh-publickey", "path": "authorized_keys"},
                    ],
                    "defaultMode": 384,
                },
            },
            {"name": "data", "persistentVolumeClaim": {"claimName": "imagenet"}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "16Gi"}},
            {"name": "mpi-job-config", "configMap": {"name": f"{name}-config", "defaultMode": 420}},
            {
                "name": "kube-api-access-7x2lm",
                "projected": {
                    "sources": [
                        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}
                    ],
                    "defaultMode": 420,
                },
            },
        ],
        "containers": [
            {
                "name": "mpi",
                "image": "registry.example.org/training/vgg16:torch2",
                "command": ["/usr/sbin/sshd"],
                "args": ["-De", "-f", "/home/mpiuser/.sshd_config"],
                "env": env,
                "resources": {
                    "limits": {"cpu": "8", "memory": "64Gi", GPU_WHOLE: "1"},
                    "requests": {"cpu": "8", "memory": "64Gi", GPU_WHOLE: "1"},
                },
                "volumeMounts": [shared, config, key, data, token],
                "readinessProbe": {"tcpSocket": {"port": 22}, **probe},
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "imagePullPolicy": "IfNotPresent",
                "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}},
            },
            {
                "name": "log-shipper",
                "image": "registry.example.org/logging/shipper:1.9",
                "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
                "volumeMounts": [token],
                "imagePullPolicy": "IfNotPresent",
            },
        ],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "serviceAccountName": "default",
        "schedulerName": "default-scheduler",
        "tolerations": [
            {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
            {
                "key": "node.kubernetes.io/not-ready",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 300,
            },
            {
                "key": "node.kubernetes.io/unreachable",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 300,
            },
        ],
        "priority": 0,
        "preemptionPolicy": "PreemptLowerPriority",
        "enableServiceLinks": True,
        "hostNetwork": True,
    }


def _managed_fields(spec: dict[str, Any]) -> dict[str, Any]:
    """Return who set which field, as deep as the fields lie."""
    containers = {
        f'k:{{"name":"{container["name"]}"}}': {
            ".": {},
            "f:env": {f'k:{{"name":"{env["name"]}"}}': _OWNED for env in container.get("env", ())},
            "f:resources": {
                f"f:{kind}": {f"f:{key}": {} for key in amounts}
                for kind, amounts in container["resources"].items()
            },
            "f:volumeMounts": {
                f'k:{{"mountPath":"{mount["mountPath"]}"}}': _OWNED
                for mount in container["volumeMounts"]
            },
            **{f"f:{key}": {} for key in container},
        }
        for container in (*spec["initContainers"], *spec["containers"])
    }
    return {
        "manager": "training-operator",
        "operation": "Update",
        "apiVersion": "v1",
        "time": "2026-01-01T00:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {
            "f:metadata": {"f:labels": {".": {}, "f:app": {}, "f:release": {}}},
            "f:spec": {**{f"f:{key}": {} for key in spec}, "f:containers": containers},
        },
    }
