"""The pods that have GPUs by claims, by the state of the kubelet's DRA manager."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.gpu_readings import gpu
from support.prepared_claims import claim_of, state_of
from support.strategies import JSON

from agent.kubelet.call import KubeletError
from agent.kubelet.prepared_claims import PodWithClaim, pods_with_claims
from linkwise.cluster.allocations.gpus import GPUShare

# After a reboot, minors may be in another order than indices.
GPUS = tuple(gpu(i, minor=7 - i) for i in range(8))


def held(*claims):
    return {pod.uid: {share.i for share in pod.gpus} for pod in pods_with_claims(*claims)}


def test_the_gpus_of_pods_are_those_of_the_minors():
    state = state_of(claim_of("gpu-7", "gpu-6", pods=("a", "b")), claim_of("gpu-0", pods=("c",)))

    assert held(state, GPUS) == {"a": {0, 1}, "b": {0, 1}, "c": {7}}
    assert PodWithClaim("team", "c", (GPUShare(7, "GPU-7"),)) in pods_with_claims(state, GPUS)
    assert {pod.pod for pod in pods_with_claims(state, GPUS)} == {"a", "b", "c"}


@pytest.mark.parametrize(
    ("device", "gpus"),
    [
        pytest.param("gpu-2-mig-1g.10gb-0", {5}, id="a MIG device"),
        pytest.param("gpu-99", set(range(8)), id="a minor that no GPU has now"),
        pytest.param("GPU-b7", set(range(8)), id="another kind of name"),
    ],
)
def test_a_device_may_be_any_gpu_unless_its_name_says_which(device, gpus):
    assert held(state_of(claim_of(device)), GPUS) == {"uid": gpus}


def test_claims_of_other_drivers_are_left_out():
    state = state_of(claim_of("channel-0", driver="compute-domain.nvidia.com"))
    assert pods_with_claims(state, GPUS) == ()


def test_a_kubelet_without_claims_has_no_pods():
    assert pods_with_claims(state_of(none=True), GPUS) == ()


@given(st.binary(max_size=20) | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_other_state_is_an_error(state):
    with pytest.raises(KubeletError, match="dra_manager_state cannot be read"):
        pods_with_claims(state, GPUS)


@given(JSON)
def test_any_data_is_read_or_an_error(data):
    try:
        pods_with_claims(json.dumps({"Data": json.dumps(data), "Checksum": 1}).encode(), GPUS)
    except KubeletError:
        return
