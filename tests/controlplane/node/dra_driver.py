"""A driver for claims (DRA) in place of NVIDIA's, run as a process beside a real node.

It follows kubernetes-sigs/dra-driver-nvidia-gpu: devices are named by minor and published in
random order, a claim is prepared once, a device that another claim holds prepared is refused, and
after a reboot nothing is prepared. Slices that the kubelet deleted come back after some seconds,
in generation 1. Run as `python -m controlplane.node.dra_driver CONFIG`.
"""

import asyncio
import json
import os
import ssl
import sys
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from controlplane.api import Api, ApiError, Object
from controlplane.claims_nodes import GPU, slice_of
from controlplane.dra import SLICES, claims_of
from controlplane.node.api.dra_pb2 import (
    Claim,
    Device,
    NodePrepareResourceResponse,
    NodePrepareResourcesRequest,
    NodePrepareResourcesResponse,
    NodeUnprepareResourceResponse,
    NodeUnprepareResourcesRequest,
    NodeUnprepareResourcesResponse,
)
from controlplane.node.api.pluginregistration_pb2 import (
    InfoRequest,
    PluginInfo,
    RegistrationStatus,
    RegistrationStatusResponse,
)
from controlplane.node.gpus import StandInGPUs
from controlplane.node.machine import NODES, RealNode
from controlplane.process import Process

from linkwise.cluster.keys import DRA_GPU_DRIVER

ABSENCE = 5.0
"""From the deletion of the slices until the driver writes them again, at most 30 s with NVIDIA's
[s]."""
_PERIOD = 0.2
_KIND = "k8s.gpu.nvidia.com/claim"
_SERVICE = "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"


def driver_of(node: RealNode, gpus: StandInGPUs) -> Process:
    """Return the driver of a node with the minors that the GPUs have now, to be started."""
    config = {
        "node": node.name,
        "kubelet": str(node.kubelet_folder),
        "run": str(gpus.root / "var/run"),
        "gpus": [_gpu(card) for card in gpus.cards],
        "edits": {f"gpu-{card.minor}": gpus.edits([card]) for card in gpus.cards},
        "common": gpus.common_edits,
    }
    path = node.place.folder / "dra-driver.json"
    path.write_text(json.dumps(config))
    environment = {
        "PYTHONPATH": ":".join(map(str, Path(__file__).parents[2:4])),
        "API_SERVER": node.plane.server,
        "API_TOKEN": node.plane.api.token,
        "API_CA_FILE": str(node.plane.ca_file),
    }
    argv = (sys.executable, "-m", "controlplane.node.dra_driver", str(path))
    return Process("dra-driver", argv, node.place.folder / "log/dra-driver.log", (), environment)


def is_published(node: RealNode) -> bool:
    """Return whether the slices of a node exist."""
    return bool(node.plane.api.get(SLICES, fieldSelector=f"spec.nodeName={node.name}")["items"])


def _gpu(card: Any) -> Object:
    return {
        "uuid": card.uuid,
        "bus_id": card.bus_id,
        "minor": card.minor,
        "pcie_root": f"pci{card.bus_id[:7]}",
        "numa": card.numa,
        "product": card.model,
        "memory": card.memory >> 30,
    }


@dataclass(slots=True)
class Checkpoint:
    """The prepared claims, which outlive the process; void after a reboot."""

    path: Path
    boot: str
    """Of the node since its last boot."""
    claims: dict[str, list[str]] = field(default_factory=dict)
    """The CDI devices' names, by the uid of the claim."""

    def __post_init__(self) -> None:
        with suppress(FileNotFoundError):
            stored = json.loads(self.path.read_text())
            if stored["boot"] == self.boot:
                self.claims = stored["claims"]

    def write(self) -> None:
        """Store the claims."""
        draft = self.path.with_suffix(".new")
        draft.write_text(json.dumps({"boot": self.boot, "claims": self.claims}))
        draft.replace(self.path)


@dataclass(slots=True)
class Driver:
    """Prepares claims, and keeps the slices of the node."""

    config: Object
    api: Api
    checkpoint: Checkpoint
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def prepare(self, claim: Claim) -> NodePrepareResourceResponse:
        """Prepare a claim, or say why not."""
        async with self._lock:
            try:
                stored = await asyncio.to_thread(
                    self.api.get, f"{claims_of(claim.namespace)}/{claim.name}"
                )
                return NodePrepareResourceResponse(devices=self._prepare(claim, stored))
            except (ApiError, OSError, ValueError) as error:
                return NodePrepareResourceResponse(error=str(error))

    def _prepare(self, claim: Claim, stored: Object) -> list[Device]:
        if stored["metadata"]["uid"] != claim.uid:
            raise ValueError(f"claim {claim.name} was replaced")
        results = [
            result
            for result in stored["status"]["allocation"]["devices"]["results"]
            if (result["driver"], result["pool"]) == (DRA_GPU_DRIVER, self.config["node"])
        ]
        names = [result["device"] for result in results]
        if claim.uid not in self.checkpoint.claims:
            self._check(claim.uid, names)
            self._spec_file(claim.uid).write_text(json.dumps(self._spec(claim.uid, names)))
            self.checkpoint.claims[claim.uid] = names
            self.checkpoint.write()
        return [
            Device(
                request_names=[result["request"]],
                pool_name=result["pool"],
                device_name=result["device"],
                cdi_device_ids=[f"{_KIND}={claim.uid}-{result['device']}"],
            )
            for result in results
        ]

    def _check(self, uid: str, names: list[str]) -> None:
        """Raise ValueError if a device does not exist, or is prepared for another claim."""
        holders = {name: other for other, held in self.checkpoint.claims.items() for name in held}
        for name in names:
            if name not in self.config["edits"]:
                raise ValueError(f"requested device is not allocatable: {name}")
            if holders.get(name, uid) != uid:
                raise ValueError(
                    f"requested device {name} is already allocated to different claim"
                    f" {holders[name]}"
                )

    async def unprepare(self, claim: Claim) -> NodeUnprepareResourceResponse:
        """Undo what was prepared for a claim."""
        async with self._lock:
            self._spec_file(claim.uid).unlink(missing_ok=True)
            if self.checkpoint.claims.pop(claim.uid, None) is not None:
                self.checkpoint.write()
        return NodeUnprepareResourceResponse()

    def _spec_file(self, uid: str) -> Path:
        return Path(self.config["run"]) / "cdi" / f"{_KIND.replace('/', '-')}_{uid}.json"

    def _spec(self, uid: str, names: list[str]) -> Object:
        devices = [
            {"name": f"{uid}-{name}", "containerEdits": self.config["edits"][name]}
            for name in names
        ]
        common = self.config["common"]
        return {"cdiVersion": "0.5.0", "kind": _KIND, "devices": devices, "containerEdits": common}

    async def keep_slices(self) -> None:
        """Write the slice of the node; write it again, some seconds after a kubelet deleted it."""
        absent = ABSENCE
        while True:
            # While the API server is away, nothing is known.
            with suppress(ApiError, OSError):
                absent = await asyncio.to_thread(self._keep_slice, absent)
            await asyncio.sleep(_PERIOD)

    def _keep_slice(self, absent: float) -> float:
        """Return for how long the slice is absent [s]; write it when that is long enough."""
        name = self.config["node"]
        if self.api.get(SLICES, fieldSelector=f"spec.nodeName={name}")["items"]:
            return 0.0
        if absent < ABSENCE:
            return absent + _PERIOD
        node = self.api.get(f"{NODES}/{name}")
        self.api.create(SLICES, slice_of(node, [GPU(**gpu) for gpu in self.config["gpus"]]))
        return 0.0


async def serve(config: Object, api: Api) -> None:
    """Serve the kubelet until cancelled. It finds the driver by its socket for registration."""
    kubelet = Path(config["kubelet"])
    folder, registry = kubelet / "plugins" / DRA_GPU_DRIVER, kubelet / "plugins_registry"
    for each in (folder, registry):
        each.mkdir(parents=True, exist_ok=True)
    checkpoint = Checkpoint(folder / "checkpoint.json", _boot(Path(config["run"])))
    driver = Driver(config, api, checkpoint)
    endpoint = folder / "dra.sock"
    services = {
        endpoint: (_SERVICE, _claim_methods(driver)),
        registry / f"{DRA_GPU_DRIVER}-reg.sock": (
            "pluginregistration.Registration",
            _registration_methods(endpoint),
        ),
    }
    servers = []
    for socket, (service, methods) in services.items():
        socket.unlink(missing_ok=True)
        server = grpc.aio.server()
        handler = grpc.method_handlers_generic_handler(service, methods)
        server.add_generic_rpc_handlers((handler,))
        server.add_insecure_port(f"unix:{socket}")
        await server.start()
        servers.append(server)
    await driver.keep_slices()


def _boot(run: Path) -> str:
    """Return the id of the node's boot, which lies in a folder that a reboot empties."""
    path = run / "boot-id"
    if not path.exists():
        path.write_text(str(uuid.uuid4()))
    return path.read_text()


def _claim_methods(driver: Driver) -> Mapping[str, Any]:
    async def prepare(
        request: NodePrepareResourcesRequest, _context: object
    ) -> NodePrepareResourcesResponse:
        claims = {claim.uid: await driver.prepare(claim) for claim in request.claims}
        return NodePrepareResourcesResponse(claims=claims)

    async def unprepare(
        request: NodeUnprepareResourcesRequest, _context: object
    ) -> NodeUnprepareResourcesResponse:
        claims = {claim.uid: await driver.unprepare(claim) for claim in request.claims}
        return NodeUnprepareResourcesResponse(claims=claims)

    return {
        "NodePrepareResources": _method(prepare, NodePrepareResourcesRequest),
        "NodeUnprepareResources": _method(unprepare, NodeUnprepareResourcesRequest),
    }


def _registration_methods(endpoint: Path) -> Mapping[str, Any]:
    async def info(_request: InfoRequest, _context: object) -> PluginInfo:
        return PluginInfo(
            type="DRAPlugin",
            name=DRA_GPU_DRIVER,
            endpoint=str(endpoint),
            supported_versions=["v1.DRAPlugin"],
        )

    async def notify(status: RegistrationStatus, _context: object) -> RegistrationStatusResponse:
        print(f"registered: {status.plugin_registered} {status.error}", flush=True)
        return RegistrationStatusResponse()

    return {
        "GetInfo": _method(info, InfoRequest),
        "NotifyRegistrationStatus": _method(notify, RegistrationStatus),
    }


def _method(handle: Any, request: Any) -> Any:
    return grpc.unary_unary_rpc_method_handler(
        handle, request.FromString, lambda answer: answer.SerializeToString()
    )


def _main(path: Path) -> None:
    context = ssl.create_default_context(cafile=os.environ["API_CA_FILE"])
    api = Api(os.environ["API_SERVER"], os.environ["API_TOKEN"], context)
    asyncio.run(serve(json.loads(path.read_text()), api))


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
