"""A node whose kubelet, API server and driver are stand-ins, and whose agent is a real process."""

import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGTERM
from subprocess import DEVNULL, Popen
from urllib.request import urlopen

from aiohttp import web
from controlplane.process import free_ports
from nvml.standin import MACHINE, StandInNVML
from support.gpu_readings import gpu
from support.nvidia_cdi import as_yaml, nvidia_spec
from support.servers.kubelet_stub import Kubelet, Plugin
from support.waiting import until

from agent.kubelet.api import podresources_pb2
from agent.publish.node_labels import FIELD_MANAGER
from cluster import keys
from topology.catalogue import entry

NODE = "gpu-0"
_MAP = f"{keys.TOPOLOGY_NAME_PREFIX}{NODE}"
# structlog imports it where it is installed: in the development environment, not in the image.
_MAIN = "import runpy, sys; sys.modules['rich'] = None; runpy.run_module('agent', None, '__main__')"


@dataclass(slots=True)
class Api:
    """The objects that an agent reads and writes, and its requests."""

    reads: int = 0
    writes: list[str] = field(default_factory=list)
    pods: dict[str, object] = field(default_factory=dict)
    config_map: dict[str, dict[str, str]] | None = None
    labels: dict[str, str] = field(default_factory=lambda: {keys.NODE_MODE: "topology"})
    applied: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        """Serve until the end; give the address."""
        app = web.Application()
        app.router.add_get("/api/v1/nodes", self._nodes)
        app.router.add_get("/{path:.*}", self._get)
        app.router.add_route("*", "/{path:.*}", self._write)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()

    @property
    def unhealthy(self) -> set[str]:
        """The published indices of unhealthy GPUs."""
        devices = json.loads(self.config_map["data"]["devices"]) if self.config_map else {}
        return {i for i, health in devices.items() if health == "Unhealthy"}

    @property
    def _node(self) -> dict[str, object]:
        labels: dict[str, object] = {f"f:{key}": {} for key in self.applied}
        fields = {"f:metadata": {"f:labels": labels}}
        manager = {"manager": FIELD_MANAGER, "operation": "Apply", "fieldsV1": fields}
        return {
            "metadata": {
                "name": NODE,
                "uid": "uid-1",
                "labels": self.labels | self.applied,
                "annotations": self.annotations,
                "managedFields": [manager],
                "resourceVersion": "1",
            }
        }

    async def _nodes(self, request: web.Request) -> web.StreamResponse:
        self.reads += 1
        if "watch" not in request.query:
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": [self._node]})
        response = web.StreamResponse()
        await response.prepare(request)
        await until(lambda: request.transport is None or request.transport.is_closing(), 3600)
        return response

    async def _get(self, request: web.Request) -> web.Response:
        self.reads += 1
        name = request.path.rpartition("/")[2]
        found = {NODE: self._node, _MAP: self.config_map, **self.pods}.get(name)
        return web.json_response(found or {"code": 404}, status=200 if found else 404)

    async def _write(self, request: web.Request) -> web.Response:
        self.writes.append(f"{request.method} {request.path}")
        body = json.loads(await request.read())
        if "/configmaps" in request.path:
            self.config_map = body
            body["metadata"]["resourceVersion"] = str(len(self.writes))
        elif request.path.startswith("/api/v1/nodes/"):
            self.applied = body["metadata"].get("labels", self.applied)
            self.annotations |= body["metadata"].get("annotations", {})
        return web.json_response({"metadata": {"name": "stored"}})


@dataclass(slots=True)
class StubNode:
    """A DGX-1 V100 of mode topology, and its agent."""

    api: Api
    kubelet: Kubelet
    driver: StandInNVML
    pid: int
    probes: str

    @property
    def plugin(self) -> Plugin:
        """The device plugin of whole GPUs."""
        return self.kubelet.plugins[keys.GPU_WHOLE]

    def add_pod(self, name: str, slot: str, number: int) -> None:
        """Let the kubelet list the container of a pod whose record is one GPU."""
        record = json.dumps({"v": 1, "node": NODE, "gpus": [{"i": number}]})
        limits = {"limits": {keys.GPU_WHOLE: "1"}}
        self.api.pods[name] = {
            "metadata": {
                "name": name,
                "namespace": "ns",
                "uid": f"uid-{name}",
                "annotations": {keys.ALLOCATION: record},
            },
            "spec": {"nodeName": NODE, "containers": [{"name": "main", "resources": limits}]},
        }
        part = podresources_pb2.ContainerDevices(resource_name=keys.GPU_WHOLE, device_ids=[slot])
        container = podresources_pb2.ContainerResources(name="main", devices=[part])
        self.kubelet.listed.pod_resources.append(
            podresources_pb2.PodResources(name=name, namespace="ns", containers=[container])
        )

    def metric(self, name: str) -> float:
        """Return a sample of the agent's metrics."""
        with urlopen(f"{self.probes}/metrics", timeout=10) as answer:  # noqa: S310
            text = answer.read().decode()
        found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
        return float(found[1]) if found else 0.0


@asynccontextmanager
async def stub_node() -> AsyncIterator[StubNode]:
    """Run the agent of a node, until it is published and offered."""
    api = Api()
    # The path of a Unix socket is short.
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        root = Path(name)
        for part in ("host/usr/lib", "host/etc/cdi", "kubelet/pod-resources"):
            (root / part).mkdir(parents=True)
        driver = StandInNVML(root, entry("dgx1-v100").machine)
        # An absolute link would be followed below the root of the host.
        shutil.copyfile(driver.library, root / "host/usr/lib/libnvidia-ml.so.1")
        gpus = [gpu(i, uuid=card.uuid, minor=card.minor) for i, card in enumerate(driver.cards)]
        (root / "host/etc/cdi/nvidia.yaml").write_bytes(as_yaml(nvidia_spec(gpus)))
        kubelet = Kubelet(root / "kubelet/device-plugins")
        await kubelet.start()
        # The stub serves both of its services on each of its sockets.
        (root / "kubelet/pod-resources/kubelet.sock").symlink_to(kubelet.pod_resources)
        (port,) = free_ports(1)
        async with api.serve() as server:
            environment = {
                "PATH": os.environ["PATH"],
                "PYTHONPATH": os.fspath(Path(__file__).parents[2]),
                # As in the image.
                "SSL_CERT_FILE": os.devnull,
                MACHINE: str(driver.path),
                "LINKWISE_NODE_NAME": NODE,
                "LINKWISE_HOST_ROOT": str(root / "host"),
                "LINKWISE_KUBELET_DIR": str(root / "kubelet"),
                "LINKWISE_CDI_DIR": str(root / "cdi"),
                "LINKWISE_SYS_DIR": str(root / "sys"),
                "LINKWISE_HOST": "127.0.0.1",
                "LINKWISE_PROBE_PORT": str(port),
                "LINKWISE_API_SERVER": server,
            }
            process = Popen([sys.executable, "-c", _MAIN], env=environment, stdout=DEVNULL)  # noqa: S603, ASYNC220
            try:
                node = StubNode(api, kubelet, driver, process.pid, f"http://127.0.0.1:{port}")
                await until(lambda: len(node.plugin.devices) == len(driver.cards) and api.applied)
                yield node
            finally:
                process.send_signal(SIGTERM)
                await until(lambda: process.poll() is not None)
                await kubelet.stop()
