"""A device plugin in place of NVIDIA's, run as a process: it chooses the GPUs of containers.

As NVIDIA's with the strategy `cdi-cri`: its devices are the UUIDs of the GPUs, and a container gets
the CDI devices of that name. Run as `python -m controlplane.node.nvidia_plugin FOLDER UUID...`.
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

import grpc
from controlplane.node.gpus import StandInGPUs
from controlplane.node.machine import RealNode
from controlplane.process import Process

from agent.kubelet.api.deviceplugin_pb2 import (
    AllocateRequest,
    AllocateResponse,
    CDIDevice,
    ContainerAllocateResponse,
    Device,
    DevicePluginOptions,
    Empty,
    ListAndWatchResponse,
    RegisterRequest,
)
from agent.kubelet.call import call
from linkwise.cluster.keys import NVIDIA_CDI_KIND, NVIDIA_GPU

_SOCKET = "nvidia-gpu.sock"


def plugin_of(node: RealNode, gpus: StandInGPUs) -> Process:
    """Return the plugin of a node, to be started."""
    folder = node.kubelet_folder / "device-plugins"
    argv = (sys.executable, "-m", "controlplane.node.nvidia_plugin", str(folder), *gpus.uuids)
    path = ":".join(map(str, Path(__file__).parents[2:4]))
    log = node.place.folder / "log/nvidia-plugin.log"
    return Process("nvidia-plugin", argv, log, (), {"PYTHONPATH": path})


async def serve(folder: Path, uuids: list[str]) -> None:
    """Register with the kubelet, and serve until cancelled."""
    socket = folder / _SOCKET
    socket.unlink(missing_ok=True)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((_handlers(uuids),))
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    request = RegisterRequest(version="v1beta1", endpoint=_SOCKET, resource_name=NVIDIA_GPU)
    await call(folder / "kubelet.sock", "/v1beta1.Registration/Register", request, Empty)
    try:
        await server.wait_for_termination()
    finally:
        socket.unlink(missing_ok=True)


def _handlers(uuids: list[str]) -> Any:
    async def options(_request: Empty, _context: object) -> DevicePluginOptions:
        return DevicePluginOptions()

    async def list_and_watch(_request: Empty, context: Any) -> None:
        devices = [Device(ID=uuid, health="Healthy") for uuid in uuids]
        await context.write(ListAndWatchResponse(devices=devices))
        await asyncio.Event().wait()

    async def allocate(request: AllocateRequest, _context: object) -> AllocateResponse:
        return AllocateResponse(
            container_responses=[
                ContainerAllocateResponse(
                    cdi_devices=[
                        CDIDevice(name=f"{NVIDIA_CDI_KIND}={uuid}") for uuid in one.devices_ids
                    ]
                )
                for one in request.container_requests
            ]
        )

    unary, stream = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
    return grpc.method_handlers_generic_handler(
        "v1beta1.DevicePlugin",
        {
            "GetDevicePluginOptions": unary(
                options, Empty.FromString, DevicePluginOptions.SerializeToString
            ),
            "ListAndWatch": stream(
                list_and_watch, Empty.FromString, ListAndWatchResponse.SerializeToString
            ),
            "Allocate": unary(
                allocate, AllocateRequest.FromString, AllocateResponse.SerializeToString
            ),
        },
    )


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), sys.argv[2:]))
