"""The AdmissionReview of the admission benchmarks: the worker of a gang, as an API server sends it.

6.6 KB, as real ones have: a training pod with its volumes, a service account's token, the default
tolerations, and the managers of its fields.
"""

import json
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

from support.admission import review_response

from cluster import keys
from cluster.nodes.capacity import Capacity
from policy.profile import parse_profiles
from policy.snapshot import PolicySnapshot

NAMESPACE = "vision"
JOB = "pytorch-topo-4-vgg16"
TIMES = 2_000
"""Reviews of one repetition."""

_PROFILE = {
    "name": "gpu-hpn-driver",
    "objectSelector": {"matchLabels": {keys.COMPUTE_CLASS: "gpu-hpn"}},
    "effect": {"labels": {keys.DRIVER_VERSION: "1.5.0"}},
}
_POLICY = PolicySnapshot(profiles=parse_profiles(json.dumps([_PROFILE])))
_CAPACITY = Capacity(nodes=2, whole=8)
_NAMESPACES = {NAMESPACE: {keys.NAMESPACE_NAME: NAMESPACE}}


def rows() -> Iterator[tuple[str, str, Callable[[], float]]]:
    """Yield the measurements."""
    body = review_bytes()
    name = f"admission of a {len(body) / 1000:.1f} KB AdmissionReview, bytes to bytes"

    def measure() -> float:
        start = perf_counter()
        for _ in range(TIMES):
            run(body)
        return (perf_counter() - start) / TIMES

    yield name, "≤ 60 µs", measure


def run(body: bytes) -> bytes:
    """Return the answer to a review, under a policy with one profile."""
    answer: bytes = review_response(
        body, namespaces=_NAMESPACES, policy=_POLICY, capacity=_CAPACITY
    )
    return answer


def review_bytes() -> bytes:
    """Return the review of the pod's creation."""
    pods = {"group": "", "version": "v1"}
    request = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {**pods, "kind": "Pod"},
        "resource": {**pods, "resource": "pods"},
        "requestKind": {**pods, "kind": "Pod"},
        "requestResource": {**pods, "resource": "pods"},
        "name": f"{JOB}-worker-3",
        "namespace": NAMESPACE,
        "operation": "CREATE",
        "userInfo": {
            "username": "system:serviceaccount:kubeflow:training-operator",
            "uid": "9f0b7d0e-2c7b-4d53-8a42-9e4d7b1c6a55",
            "groups": [
                "system:serviceaccounts",
                "system:serviceaccounts:kubeflow",
                "system:authenticated",
            ],
            "extra": {
                "authentication.kubernetes.io/credential-id": [
                    "JTI=0f3c5a1e-7b1d-4c70-8a55-0b5a0f6e3a11"
                ],
                "authentication.kubernetes.io/pod-name": ["training-operator-6f9d5c6d8b-x2x7k"],
            },
        },
        "object": worker(),
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    review = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}
    return json.dumps(review, separators=(",", ":")).encode()


def worker() -> dict[str, Any]:
    """Return the pod: worker 3 of a gang of 4, one GPU each, as arena and its operator make it."""
    spec = _spec()
    owner = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "MPIJob",
        "name": JOB,
        "uid": "5b2b1f5e-6d39-4f7a-9a53-0b6f6d5f2a10",
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": f"{JOB}-worker-3",
            "namespace": NAMESPACE,
            "creationTimestamp": None,
            "labels": {
                "app": "mpijob",
                "release": JOB,
                "createdBy": "MPIJob",
                "gpu-topology": JOB,
                keys.GPU_TOPOLOGY_REPLICA: "4",
                keys.POD_GROUP_NAME: JOB,
                keys.POD_GROUP_MIN_AVAILABLE: "4",
                keys.JOB_NAME: JOB,
                keys.OPERATOR_NAME: "mpijob-controller",
                keys.REPLICA_TYPE: "worker",
                keys.REPLICA_INDEX: "3",
            },
            "annotations": {
                "k8s.v1.cni.cncf.io/networks": '[{"name":"roce-0"},{"name":"roce-1"}]',
                "kubectl.kubernetes.io/default-container": "mpi",
                "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
                "sidecar.istio.io/inject": "false",
            },
            "ownerReferences": [owner],
            "managedFields": [_managed_fields(spec)],
        },
        "spec": spec,
        "status": {},
    }


def _spec() -> dict[str, Any]:
    token = "kube-api-access-7x2lm"  # noqa: S105 (a volume's name)
    return {
        "volumes": [
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "16Gi"}},
            {"name": "data", "persistentVolumeClaim": {"claimName": "imagenet"}},
            {
                "name": "mpi-job-config",
                "configMap": {
                    "name": f"{JOB}-config",
                    "items": [
                        {"key": "kubexec.sh", "path": "kubexec.sh", "mode": 365},
                        {"key": "hostfile", "path": "hostfile", "mode": 292},
                    ],
                    "defaultMode": 420,
                },
            },
            {"name": token, "projected": {"sources": _token_sources(), "defaultMode": 420}},
        ],
        "containers": [_container(token)],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirstWithHostNet",
        "serviceAccountName": "default",
        "serviceAccount": "default",
        "hostNetwork": True,
        "securityContext": {"fsGroup": 1000},
        "schedulerName": "default-scheduler",
        "tolerations": [
            {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
            *(
                {
                    "key": f"node.kubernetes.io/{condition}",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                }
                for condition in ("not-ready", "unreachable")
            ),
        ],
        "priority": 0,
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
    }


def _container(token: str) -> dict[str, Any]:
    amounts = {"cpu": "8", "memory": "64Gi", keys.GPU_WHOLE: "1"}
    literals = {
        "NCCL_DEBUG": "INFO",
        "NCCL_IB_HCA": "mlx5_0,mlx5_1",
        "NCCL_SOCKET_IFNAME": "eth0",
        "OMP_NUM_THREADS": "8",
        "PYTHONUNBUFFERED": "1",
        "TORCH_HOME": "/data/torch",
    }
    pod_ip = {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}
    return {
        "name": "mpi",
        "image": "registry.example.org/training/pytorch-benchmark:torch2.9-cuda13.0-py3.11",
        "command": ["/bin/bash", "-c"],
        "args": [
            "set -euo pipefail; mkdir -p /run/sshd /home/mpi/.ssh; ssh-keygen -A; "
            "cp /etc/mpi/hostfile /home/mpi/hostfile; ulimit -l unlimited; "
            "nvidia-smi topo -m; ibv_devinfo | grep -E 'hca_id|state|link_layer' || true; "
            "for nic in roce-0 roce-1; do ip -br link show $nic; done; df -h /data /dev/shm; "
            "python -c 'import torch; print(torch.__version__, torch.version.cuda)'; "
            "exec /usr/sbin/sshd -De -o StrictModes=no -o PermitUserEnvironment=yes"
        ],
        "env": [
            *({"name": name, "value": value} for name, value in literals.items()),
            {"name": "POD_IP", "valueFrom": pod_ip},
        ],
        "resources": {"limits": amounts, "requests": amounts},
        "volumeMounts": [
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 (inside the container)
            {"name": "data", "mountPath": "/data"},
            {"name": "mpi-job-config", "mountPath": "/etc/mpi"},
            {
                "name": token,
                "readOnly": True,
                "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
            },
        ],
        "readinessProbe": {
            "tcpSocket": {"port": 22},
            "timeoutSeconds": 1,
            "periodSeconds": 10,
            "successThreshold": 1,
            "failureThreshold": 3,
        },
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {"capabilities": {"add": ["IPC_LOCK", "SYS_PTRACE"]}},
    }


def _token_sources() -> list[dict[str, Any]]:
    namespace = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
    return [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {
            "configMap": {
                "name": "kube-root-ca.crt",
                "items": [{"key": "ca.crt", "path": "ca.crt"}],
            }
        },
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": namespace}]}},
    ]


def _managed_fields(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the managedFields of the pod."""
    containers: dict[str, Any] = {
        f'k:{{"name":"{container["name"]}"}}': {
            ".": {},
            **{f"f:{key}": {} for key in container},
            "f:env": {
                f'k:{{"name":"{env["name"]}"}}': {".": {}, "f:name": {}, "f:value": {}}
                for env in container["env"]
            },
            "f:resources": {
                f"f:{part}": {".": {}, **{f"f:{key}": {} for key in amounts}}
                for part, amounts in container["resources"].items()
            },
            "f:volumeMounts": {
                f'k:{{"mountPath":"{mount["mountPath"]}"}}': {
                    ".": {},
                    **{f"f:{key}": {} for key in mount},
                }
                for mount in container["volumeMounts"]
            },
        }
        for container in spec["containers"]
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
