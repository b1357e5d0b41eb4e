import pytest
from msgspec import convert
from support.builders import a_container, a_pod

from linkwise.cluster import keys
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.requests.other_systems import gpus_of_others
from linkwise.cluster.requests.request_reader import read_request

MIG, OTHER_MIG = f"{keys.MIG_PREFIX}1g.5gb", f"{keys.MIG_PREFIX}2g.10gb"
CLAIM = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]}
HAMI = {keys.NVIDIA_GPU: 1, "nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30}


def foreign_gpus(*limits, **spec):
    pod = convert(a_pod(*limits, **spec), Pod)
    request, _ = read_request(pod)
    return gpus_of_others(pod.spec, request.family)


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (([{MIG: 1}], {}), f"MIG devices ({MIG})"),
        (([{MIG: 1, OTHER_MIG: 1}], {}), f"MIG devices ({MIG}, {OTHER_MIG})"),
        (([], {"initContainers": [a_container({MIG: 1})]}), f"MIG devices ({MIG})"),
        (([{}], CLAIM), "devices by a claim (DRA, spec.resourceClaims)"),
        (([HAMI], {}), "shares of GPUs from HAMi (nvidia.com/gpumem, nvidia.com/gpucores)"),
        (
            ([{keys.NVIDIA_GPU: 1}], {"schedulerName": keys.HAMI_SCHEDULER}),
            "shares of GPUs from HAMi (scheduler hami-scheduler)",
        ),
        (
            ([{f"{keys.MIG_PREFIX}{i}g": 1 for i in range(9)}], {}),
            "MIG devices (nvidia.com/mig-0g, nvidia.com/mig-1g, nvidia.com/mig-2g, …)",
        ),
    ],
    ids=["mig", "two kinds", "init", "claim", "hami", "hami's scheduler", "many"],
)
def test_resource_of_another_system_is_named(pod, expected):
    limits, spec = pod
    assert foreign_gpus(*limits, **spec) == expected


@pytest.mark.parametrize(
    ("limits", "spec"),
    [
        ({}, {}),
        ({}, {"schedulerName": keys.HAMI_SCHEDULER}),
        ({keys.NVIDIA_GPU: 1}, {}),
        ({keys.NVIDIA_GPU: 1}, CLAIM),
        ({keys.GPU_WHOLE: 1}, CLAIM),
        ({keys.GPU_MEM: 1, MIG: 1}, {}),
        ({MIG: 0}, {}),
    ],
    ids=["none", "scheduler alone", "nvidia", "and a claim", "ours", "a share", "0"],
)
def test_a_pod_that_linkwise_knows_is_not_left_to_others(limits, spec):
    assert foreign_gpus(limits, **spec) is None
