"""GPUs into containers by an annotation or a RuntimeClass, on a real API server."""

import pytest
from controlplane.api import refusal
from controlplane.gangs import make_gang, wait_until_placed
from controlplane.process import wait_until

from linkwise.cluster import keys

ONE = {keys.GPU_WHOLE: 1}
CONTAINER = f"{keys.NVIDIA_CDI_CONTAINER}c0"
RUNTIME_CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"


@pytest.mark.usefixtures("placing")
def test_the_scorer_alone_writes_the_cdi_devices_of_a_gang(pods, machines, policy):
    machines(1)
    policy("containers: {gpuInjection: nri}")
    long_name = {"containers": [{"name": "c" * 54, "image": "none", "resources": {"limits": ONE}}]}
    wait_until(lambda: "LW124" in pods.refusal(spec=long_name, dryRun="All"), "the policy holds")

    make_gang(pods, "pair", 2, 4)
    members = wait_until_placed(pods, "pair", 2)

    for name, gpus in members.items():
        annotations = pods.all()[name]["metadata"]["annotations"]
        visible = annotations[keys.VISIBLE_DEVICES].split(",")
        assert len(visible) == len(gpus) == 4
        assert annotations[CONTAINER] == ",".join(f"nvidia.com/gpu={gpu}" for gpu in visible)
        for value in ("nvidia.com/gpu=all", None):
            change = {"metadata": {"annotations": {CONTAINER: value}}}
            message = refusal(lambda name=name, change=change: _patch(pods, name, change))
            assert "written by linkwise-scorer alone" in message
    own = {CONTAINER: "nvidia.com/gpu=all"}
    assert "LW123" in pods.refusal(ONE, annotations=own)


def _patch(pods, name, change):
    return pods.api.patch(f"{pods.path}/{name}", change)


@pytest.mark.usefixtures("placing")
def test_pods_with_gpus_get_the_runtime_class_of_nvidia(plane, pods, policy):
    overhead = {"podFixed": {"memory": "64Mi"}}
    made = {"metadata": {"name": "nvidia"}, "handler": "nvidia", "overhead": overhead}
    plane.api.create(RUNTIME_CLASSES, made)
    try:
        policy("containers: {gpuInjection: runtimeClass}")

        def dry_run():
            return pods.create(ONE, dryRun="All")["spec"]

        wait_until(lambda: "runtimeClassName" in dry_run(), "the policy holds")

        spec = dry_run()
        # The API server applies the RuntimeClass after the webhook set it.
        assert (spec["runtimeClassName"], spec["overhead"]) == ("nvidia", overhead["podFixed"])
    finally:
        plane.api.delete(f"{RUNTIME_CLASSES}/nvidia")
    wait_until(lambda: "not found" in pods.refusal(ONE, dryRun="All"), "the RuntimeClass is gone")
