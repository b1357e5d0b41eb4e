import json

import msgspec
import pytest
from msgspec import Raw

from scorer.scale_up.pod_template import MAX_BYTES, pod_template


def raw(*containers, labels=None, **spec):
    pod = {
        "metadata": {"name": "worker-0", "labels": labels or {}},
        "spec": {"containers": [{"name": "c", "resources": one} for one in containers], **spec},
    }
    return Raw(json.dumps(pod).encode())


def built(*pods):
    """Return the template, as the API server receives it."""
    return json.loads(msgspec.json.encode(pod_template(pods)))


def resources(template):
    (container,) = template["spec"]["containers"]
    assert container["resources"]["requests"] == container["resources"]["limits"]
    return container["resources"]["requests"]


def test_a_template_requests_what_the_whole_pod_does():
    pod = raw(
        {"limits": {"aliyun.com/gpu": "4", "rdma/hca": 1, "cpu": "1500m", "memory": "1Gi"}},
        {"requests": {"cpu": "1", "memory": "1Ki"}},
        initContainers=[
            {"name": "big", "resources": {"requests": {"memory": "2Gi"}}},
            {"name": "sidecar", "restartPolicy": "Always", "resources": {"requests": {"cpu": 1}}},
        ],
        overhead={"cpu": "10m"},
    )
    assert resources(built((pod, 1))) == {
        "aliyun.com/gpu": "4",
        "rdma/hca": "1",
        "cpu": "3510m",
        "memory": str(2 << 30),
    }


def test_pods_of_one_node_are_added_up():
    first = raw({"limits": {"aliyun.com/gpu": "2", "cpu": "500m"}})
    other = raw({"limits": {"aliyun.com/gpu": "1", "memory": "5"}})
    template = built((first, 3), (other, 2))
    assert resources(template) == {"aliyun.com/gpu": "8", "cpu": "1500m", "memory": "10"}


def test_a_template_has_the_constraints_of_its_pod_and_nothing_else():
    affinity = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}
            ]
        }
    }
    constraints = {
        "affinity": affinity,
        "nodeSelector": {"pool": "gpu"},
        "tolerations": [{"operator": "Exists"}],
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone"}],
        "priority": 7,
    }
    pod = raw(
        {"limits": {"aliyun.com/gpu": "1"}},
        labels={"app": "bert"},
        schedulingGates=[{"name": "linkwise.dev/gang"}],
        serviceAccountName="rich",
        volumes=[{"name": "secret", "secret": {"secretName": "token"}}],
        **constraints,
    )
    template = built((pod, 1))
    assert template["metadata"] == {"labels": {"app": "bert"}}
    assert {key: template["spec"].get(key) for key in constraints} == constraints
    assert template["spec"].keys() == {"containers", *constraints}


def test_host_ports_are_kept():
    pod = {
        "metadata": {},
        "spec": {
            "hostNetwork": True,
            "containers": [{"name": "c", "ports": [{"containerPort": 2222}]}],
        },
    }
    (container,) = built((Raw(json.dumps(pod).encode()), 1))["spec"]["containers"]
    assert container["ports"] == [
        {"containerPort": 2222, "hostPort": 2222, "hostIP": "", "protocol": "TCP"}
    ]


@pytest.mark.parametrize(
    ("length", "is_built"),
    [(MAX_BYTES // 2, True), (MAX_BYTES, False)],
    ids=["short", "too long"],
)
def test_a_template_has_a_limited_length(length, is_built):
    pod = raw({"limits": {"aliyun.com/gpu": "1"}}, nodeSelector={"pool": "x" * length})
    assert (pod_template([(pod, 1)]) is not None) is is_built
