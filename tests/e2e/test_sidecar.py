"""Single pods and shares, by a stock scheduler that asks the scorer about GPUs."""

import pytest
from controlplane.history import gpus
from controlplane.pods import Pods
from controlplane.process import wait_until
from controlplane.sidecar import MANIFESTS, run_sidecar
from controlplane.webhook import run_webhook

from cluster import keys

SHARED = {"name": "share", "machine": "t4x4", "mode": "core_mem", "gpuMemory": 15}


@pytest.fixture(scope="module")
def webhook(plane):
    with run_webhook(plane, MANIFESTS) as running:
        yield running


@pytest.fixture(scope="module")
def sidecar(webhook, tmp_path_factory):
    with run_sidecar(webhook.plane, tmp_path_factory.mktemp("sidecar")) as running:
        yield running


@pytest.fixture
def pods(sidecar, webhook, namespace):
    del sidecar
    return Pods(webhook.plane.api, namespace)


def share(memory, core=None):
    return {keys.GPU_MEM: memory, **({keys.GPU_CORE: core} if core else {})}


def where(pods, name):
    """Return a pod's node and GPUs once it is bound."""
    wait_until(lambda: bool(pods.all()[name]["spec"].get("nodeName")), f"{name} is bound")
    pod = pods.all()[name]
    return pod["spec"]["nodeName"], [gpu for _, gpu in gpus(pod)]


def test_shares_fill_a_card_before_the_next_one(pods, nodes):
    nodes(SHARED)
    placed = []
    for number in range(5):
        pods.create(share(5, 30), name=f"pod-{number}")
        placed.append(where(pods, f"pod-{number}"))

    assert placed == [("share", [card]) for card in (0, 0, 0, 1, 1)]
