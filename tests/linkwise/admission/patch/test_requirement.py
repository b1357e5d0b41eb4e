import pytest

from linkwise.admission.patch.requirement import node_requirements
from linkwise.cluster import keys
from linkwise.cluster.nodes.capacity import Capacity
from linkwise.cluster.requests.request import Family, Request
from linkwise.policy.document import parse_policy
from linkwise.policy.snapshot import PolicySnapshot

HPN = {keys.COMPUTE_CLASS: "gpu-hpn"}
GPU = {keys.COMPUTE_CLASS: "gpu"}
T4 = {keys.MODEL_SERIES: "T4"}
DRIVER = {keys.DRIVER_VERSION: "535.161.08"}
DISCOVERY = f"""
affinity:
  nodeLabels:
    model: {{key: {keys.GFD_PRODUCT}, values: {{T4: [Tesla-T4]}}}}
    driver: {{key: {keys.GFD_DRIVER}, values: {{}}}}
"""
SHARED = f"""
sharing:
  groups:
  - config: {{sharing: {{timeSlicing: {{resources: [{{name: {keys.NVIDIA_GPU}, replicas: 2}}]}}}}}}
"""
WHOLE = Request(Family.WHOLE, 1)
NVIDIA = Request(Family.NVIDIA, 1)
REPLICA = Request(Family.REPLICA, 1)
MEMORY = Request(Family.SHARE, 1, 4)
COMPUTE = Request(Family.SHARE, 1, 4, 20)


@pytest.mark.parametrize(
    ("labels", "request_", "policy", "required"),
    [
        pytest.param({}, Request(), "", {}, id="nothing"),
        pytest.param({}, WHOLE, "", {keys.NODE_MODE: ("topology",)}, id="whole"),
        pytest.param({}, NVIDIA, "", {}, id="nvidia"),
        pytest.param({}, REPLICA, "", {keys.NODE_MODE: ("timeslice",)}, id="replica"),
        pytest.param({}, MEMORY, "", {}, id="memory-alone"),
        pytest.param({}, COMPUTE, "", {keys.NODE_MODE: ("core_mem",)}, id="compute"),
        pytest.param(
            {},
            COMPUTE,
            "sharing: {computeByMps: true}",
            {keys.NODE_MODE: ("core_mem", "mps")},
            id="compute-by-mps",
        ),
        pytest.param(HPN, NVIDIA, "", {keys.NODE_TYPE: ("reserved",)}, id="hpn"),
        pytest.param(
            {**HPN, **T4, **DRIVER},
            NVIDIA,
            "affinity: {platform: acs}",
            {keys.NODE_TYPE: ("reserved",), keys.MODEL_SERIES: ("T4",)},
            id="hpn-with-model",
        ),
        pytest.param(
            {**GPU, **T4, **DRIVER},
            NVIDIA,
            "",
            {keys.MODEL_SERIES: ("T4",), keys.DRIVER_VERSION: ("535.161.08",)},
            id="model-and-driver",
        ),
        pytest.param({**GPU, **T4}, NVIDIA, "affinity: {platform: acs}", {}, id="virtual-nodes"),
        pytest.param({**T4, **DRIVER}, NVIDIA, "", {}, id="another-class"),
        pytest.param(
            {**GPU, **T4, **DRIVER},
            NVIDIA,
            DISCOVERY,
            {keys.GFD_PRODUCT: ("Tesla-T4",), keys.GFD_DRIVER: ("535.161.08",)},
            id="feature-discovery",
        ),
        pytest.param(
            {**GPU, **T4},
            NVIDIA,
            DISCOVERY + SHARED,
            {keys.GFD_PRODUCT: ("Tesla-T4", "Tesla-T4-SHARED")},
            id="feature-discovery-of-shared-gpus",
        ),
        pytest.param(
            {**GPU, **T4},
            WHOLE,
            "",
            {keys.MODEL_SERIES: ("T4",), keys.NODE_MODE: ("topology",)},
            id="class-and-resource",
        ),
    ],
)
def test_requirements_follow_request_and_class(labels, request_, policy, required):
    snapshot = PolicySnapshot(parse_policy(policy))

    requirements = node_requirements(labels, request_, snapshot, Capacity())

    assert {requirement.key: requirement.values for requirement in requirements} == required
