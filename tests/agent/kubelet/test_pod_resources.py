"""Devices of containers, asked from a stand-in kubelet."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from support.servers.kubelet_stub import Kubelet

from agent.kubelet.api import deviceplugin_pb2 as plugin_api
from agent.kubelet.api import podresources_pb2 as api
from agent.kubelet.call import KubeletError
from agent.kubelet.container_devices import ContainerDevices
from agent.kubelet.pod_resources import PodResources, containers_of
from linkwise.cluster.keys import GPU_COUNT, GPU_MEM


@pytest.fixture
async def kubelet():
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # a Unix socket has a short path
        stub = Kubelet(Path(folder))
        await stub.start()
        yield stub
        await stub.stop()


def pod(name, *containers, namespace="default"):
    return api.PodResources(name=name, namespace=namespace, containers=containers)


def container(name, *devices):
    return api.ContainerResources(
        name=name,
        devices=[
            api.ContainerDevices(resource_name=resource, device_ids=ids)
            for resource, ids in devices
        ],
    )


def slots(numbers):
    return frozenset(f"slot-{number}" for number in numbers)


async def test_devices_of_all_containers_are_listed(kubelet):
    kubelet.listed.pod_resources.extend(
        [
            pod("cpu", container("main")),
            pod(
                "gpu",
                container("main", (GPU_MEM, ["slot-3", "slot-1"]), (GPU_COUNT, ["slot-0"])),
                container("sidecar", (GPU_MEM, ["slot-2"])),
                namespace="team",
            ),
        ]
    )
    assert await PodResources(kubelet.pod_resources).list() == (
        ContainerDevices("team", "gpu", "main", GPU_MEM, slots({1, 3})),
        ContainerDevices("team", "gpu", "main", GPU_COUNT, slots({0})),
        ContainerDevices("team", "gpu", "sidecar", GPU_MEM, slots({2})),
    )


async def test_pods_without_devices_are_listed(kubelet):
    kubelet.listed.pod_resources.extend([pod("cpu", container("main")), pod("empty")])
    pods = await PodResources(kubelet.pod_resources).pods()
    assert pods == (("default", "cpu"), ("default", "empty"))


def test_devices_of_several_numa_nodes_are_one_set():
    listed = api.ListPodResourcesResponse(
        pod_resources=[pod("p", container("c", (GPU_MEM, ["slot-0"]), (GPU_MEM, ["slot-9"])))]
    )
    assert containers_of(listed) == (ContainerDevices("default", "p", "c", GPU_MEM, slots({0, 9})),)


async def test_full_node_is_listed(kubelet):
    for number in range(250):
        part = [f"slot-{slot}" for slot in range(number * 18, number * 18 + 18)]
        kubelet.listed.pod_resources.append(
            pod(f"pod-{number}", container("main", (GPU_MEM, part)))
        )
    listed = await PodResources(kubelet.pod_resources).list()
    assert len(listed) == 250
    assert frozenset().union(*(one.device_ids for one in listed)) == slots(range(4500))


async def test_kubelet_that_is_down_is_named_and_asked_again_after_its_restart(kubelet):
    resources = PodResources(kubelet.pod_resources)
    await kubelet.stop()
    with pytest.raises(KubeletError, match=r"pod-resources\.sock.*UNAVAILABLE"):
        await resources.list()
    await kubelet.start()
    assert await resources.list() == ()


async def test_list_above_16_mib_is_refused(kubelet):
    kubelet.listed.pod_resources.append(pod("p", container("c" * (17 << 20))))
    with pytest.raises(KubeletError, match="RESOURCE_EXHAUSTED"):
        await PodResources(kubelet.pod_resources).list()


@pytest.mark.parametrize(
    ("message", "wire"),
    [
        (
            plugin_api.RegisterRequest(
                version="v1beta1",
                endpoint="e",
                resource_name="r",
                options=plugin_api.DevicePluginOptions(pre_start_required=True),
            ),
            b"\x0a\x07v1beta1\x12\x01e\x1a\x01r\x22\x02\x08\x01",
        ),
        (
            plugin_api.ListAndWatchResponse(
                devices=[plugin_api.Device(ID="slot-0", health="Healthy")]
            ),
            b"\x0a\x11\x0a\x06slot-0\x12\x07Healthy",
        ),
        (
            plugin_api.AllocateResponse(
                container_responses=[
                    plugin_api.ContainerAllocateResponse(
                        cdi_devices=[plugin_api.CDIDevice(name="a/b=c")]
                    )
                ]
            ),
            b"\x0a\x09\x2a\x07\x0a\x05a/b=c",
        ),
        (plugin_api.PreStartContainerRequest(devices_ids=["slot-0"]), b"\x0a\x06slot-0"),
        (
            api.ListPodResourcesResponse(
                pod_resources=[pod("p", container("c", ("r", ["d"])), namespace="n")]
            ),
            b"\x0a\x13\x0a\x01p\x12\x01n\x1a\x0b\x0a\x01c\x12\x06\x0a\x01r\x12\x01d",
        ),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, bytes) else "",
)
def test_messages_have_the_bytes_of_the_kubelets_protocol(message, wire):
    assert message.SerializeToString() == wire


@pytest.mark.parametrize("module", ["agent.plugin.registration", "agent.kubelet.pod_resources"])
def test_import_takes_no_large_library(module):
    code = (
        f"import {module}, sys\n"
        "assert not {'numpy', 'pydantic', 'highspy'} & sys.modules.keys(), sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
