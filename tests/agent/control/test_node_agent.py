"""The whole agent in this process: stand-in driver, kubelet and API server around the real code."""

import asyncio
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import grpc
import pytest
from aiohttp import ClientError, ClientSession, web
from nvml.standin import MACHINE, VERSION_MISMATCH, StandInNVML, compiler, library
from support.gpu_readings import gpu
from support.nvidia_cdi import as_yaml, nvidia_spec
from support.prepared_claims import claim_of, state_of
from support.proc_files import UID, a_process
from support.servers.fake_api import FakeAPI, status
from support.servers.kubelet_stub import Kubelet
from support.waiting import PATIENCE, until, until_true

from agent.__main__ import run
from agent.binding.last_holders import LastHolders
from agent.binding.node_spec import Toolkit
from agent.driver.reading import DriverReplacedError
from agent.kubelet.api import podresources_pb2
from agent.kubelet.prepared_claims import STATE_FILE
from agent.plugin.watchdog import LIMIT
from agent.settings import Settings
from linkwise.cluster import keys
from linkwise.topology.catalogue import entry

NODE = "gpu-0"
MAP = f"{keys.TOPOLOGY_NAME_PREFIX}{NODE}"


class API(FakeAPI):
    """Serves the Node as a watched collection, and stores what the agent publishes."""

    def __init__(self):
        super().__init__()
        self.pods, self.config_maps, self.events, self.applied = {}, {}, [], []

    def put_node(self, *, uid="uid-1", **labels):
        metadata = {"name": NODE, "uid": uid, "labels": labels, "resourceVersion": "1"}
        self.put(NODE)
        self.objects[NODE]["metadata"].update(metadata, namespace="")
        self._tell("MODIFIED", self.objects[NODE])

    async def _list(self, request):
        found = {
            f"/api/v1/nodes/{NODE}": self.objects.get(NODE),
            **{f"/api/v1/namespaces/ns/pods/{name}": pod for name, pod in self.pods.items()},
            **{
                f"/api/v1/namespaces/kube-system/configmaps/{name}": stored
                for name, stored in self.config_maps.items()
            },
        }
        if request.path == "/api/v1/nodes":
            return await super()._list(request)
        if (item := found.get(request.path)) is None:
            return await status(404, "NotFound", "not found")(request)
        return web.json_response(item)

    async def _call(self, request):
        body = json.loads(await request.read())
        if request.path.endswith("/events"):
            self.events.append((body["reason"], body["message"]))
        elif request.method == "PATCH":
            self.applied.append(body)
            # A merge patch of annotations; labels are not read back.
            self._annotate(body["metadata"].get("annotations", {}))
        elif "/configmaps" in request.path:
            body["metadata"]["resourceVersion"] = "1"
            self.config_maps[body["metadata"]["name"]] = body
        return web.json_response({"metadata": {"name": "stored"}})

    def _annotate(self, annotations):
        if annotations:
            self.objects[NODE]["metadata"].setdefault("annotations", {}).update(annotations)

    def mode_in_use(self):
        return self.objects[NODE]["metadata"].get("annotations", {}).get(keys.MODE_IN_USE)

    def published(self, key):
        return json.loads(self.config_maps[MAP]["data"][key]) if MAP in self.config_maps else None


class Node:
    """A DGX-1 whose agent runs."""

    def __init__(self, root, api, kubelet, driver):
        self.root, self.api, self.kubelet, self.driver = root, api, kubelet, driver

    async def offers(self, resource, number):
        def offered():
            plugin = self.kubelet.plugins.get(resource)
            return plugin is not None and len(plugin.devices) == number

        await until(offered)
        return self.kubelet.plugins[resource]

    def runs(self, pod, *ids, resource=keys.GPU_WHOLE, gpus=()):
        """Let the kubelet list a container of a pod with a record."""
        record = {"v": 1, "node": NODE, "gpus": [{"i": i} for i in gpus]}
        amounts = {resource: str(len(ids))}
        self.api.pods[pod] = {
            "metadata": {
                "name": pod,
                "namespace": "ns",
                "uid": f"uid-{pod}",
                "annotations": {keys.ALLOCATION: json.dumps(record)} if gpus else {},
            },
            "spec": {
                "nodeName": NODE,
                "containers": [{"name": "main", "resources": {"limits": amounts}}],
            },
        }
        part = podresources_pb2.ContainerDevices(resource_name=resource, device_ids=ids)
        container = podresources_pb2.ContainerResources(name="main", devices=[part])
        self.kubelet.listed.pod_resources.append(
            podresources_pb2.PodResources(name=pod, namespace="ns", containers=[container])
        )

    def allocates(self, uid, *ids):
        """Let the kubelet's checkpoint have the devices of a pod."""
        entry = {"PodUID": uid, "ContainerName": "main", "ResourceName": keys.GPU_WHOLE}
        data = {"PodDeviceEntries": [{**entry, "DeviceIDs": {"-1": ids}}]}
        path = self.root / "kubelet/device-plugins/kubelet_internal_checkpoint"
        path.write_text(json.dumps({"Data": data}))

    def unhealthy(self):
        devices = self.api.published("devices") or {}
        return {int(i) for i, health in devices.items() if health == "Unhealthy"}


@pytest.fixture
async def node(monkeypatch):
    """Run the agent on an idle DGX-1 of mode topology."""
    if compiler() is None:
        pytest.skip("needs gcc")
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # A Unix socket has a short path.
        root = Path(folder)
        driver = StandInNVML(root, entry("dgx1-v100").machine)
        monkeypatch.setenv(MACHINE, str(driver.path))
        for part in ("host/usr/lib", "host/etc/cdi", "kubelet/pod-resources", "proc"):
            (root / part).mkdir(parents=True)
        shutil.copyfile(library(), root / "host/usr/lib/libnvidia-ml.so.1")
        kubelet = Kubelet(root / "kubelet/device-plugins")
        await kubelet.start()
        (root / "kubelet/pod-resources/kubelet.sock").symlink_to(kubelet.pod_resources)
        async with API() as api:
            api.put_node(**{keys.NODE_MODE: "topology"})
            yield Node(root, api, kubelet, driver)
        await kubelet.stop()


def environment_of(node, port=0):
    return {
        "LINKWISE_NODE_NAME": NODE,
        "LINKWISE_HOST_ROOT": str(node.root / "host"),
        "LINKWISE_KUBELET_DIR": str(node.root / "kubelet"),
        "LINKWISE_CDI_DIR": str(node.root / "cdi"),
        "LINKWISE_PROC_DIR": str(node.root / "proc"),
        "LINKWISE_SYS_DIR": str(node.root / "sys"),
        "LINKWISE_HOST": "127.0.0.1",
        "LINKWISE_PROBE_PORT": str(port),
        "LINKWISE_API_SERVER": node.api.url,
    }


@asynccontextmanager
async def agent(node, port=0, **options):
    """Run the agent of a node, and stop it."""
    stop = asyncio.Event()
    running = asyncio.create_task(run(Settings.read(environment_of(node, port)), stop, **options))
    try:
        yield running
    finally:
        stop.set()
        await asyncio.wait((running,))


def install_toolkit(node):
    gpus = [gpu(i, uuid=card.uuid, minor=card.minor) for i, card in enumerate(node.driver.cards)]
    (node.root / "host/etc/cdi/nvidia.yaml").write_bytes(as_yaml(nvidia_spec(gpus)))


async def test_an_idle_node_is_published_and_offered(node):
    install_toolkit(node)
    async with agent(node):
        await node.offers(keys.GPU_WHOLE, 8)
        await until(lambda: node.api.published("devices"))
    assert node.unhealthy() == set()
    machine = node.api.published("machine.json")
    assert machine["driver"] == "535.161.08"
    assert machine["uuids"] == [card.uuid for card in node.driver.cards]
    assert node.api.events == []


async def test_policies_of_the_kubelet_are_published(node):
    kubelet = Settings.read(environment_of(node)).paths.kubelet
    kubelet.mkdir(parents=True)
    (kubelet / "cpu_manager_state").write_text('{"policyName": "static"}')
    (kubelet / "config.yaml").write_text(
        "kind: KubeletConfiguration\ntopologyManagerPolicy: restricted\n"
    )
    async with agent(node):
        await until(lambda: node.api.published("machine.json"))
    machine = node.api.published("machine.json")
    assert (machine["cpuManager"], machine["topologyManager"]) == ("static", "restricted")


def put_labelled_node(node, **labels):
    """Let the agent own a label of the node."""
    fields = {"f:metadata": {"f:labels": {f"f:{keys.GFD_COUNT}": {}}}}
    entry = {"manager": "linkwise-agent", "operation": "Apply", "fieldsV1": fields}
    node.api.put_node(**{keys.NODE_MODE: "topology", keys.GFD_COUNT: "8"}, **labels)
    node.api.objects[NODE]["metadata"]["managedFields"] = [entry]


async def test_a_node_whose_gpus_cannot_be_read_loses_their_labels(node):
    put_labelled_node(node)
    node.driver.unload_driver()
    async with agent(node):
        await until(lambda: node.api.applied)

    assert node.api.applied[0]["metadata"]["labels"] == {}
    assert node.api.config_maps == {}


async def test_labels_stay_while_containers_have_gpus_that_cannot_be_read(node):
    install_toolkit(node)
    async with agent(node):
        plugin = await node.offers(keys.GPU_WHOLE, 8)
        node.runs("worker", "slot-0", gpus=(0,))
        await plugin.pre_start(["slot-0"])
    put_labelled_node(node)
    node.driver.unload_driver()
    node.api.applied.clear()
    lists = node.kubelet.lists
    async with agent(node):
        await until(lambda: "NoGPUsOffered" in dict(node.api.events))
        # A second look at the node begins after the first has ended.
        put_labelled_node(node, other="label")
        await until(lambda: node.kubelet.lists >= lists + 2)
        assert node.api.applied == []
        node.kubelet.listed.ClearField("pod_resources")
        del node.api.pods["worker"]
        put_labelled_node(node)
        await until(lambda: node.api.applied)

    assert node.api.applied[0]["metadata"]["labels"] == {}


async def test_a_container_gets_the_devices_of_its_record(node):
    install_toolkit(node)
    async with agent(node):
        plugin = await node.offers(keys.GPU_WHOLE, 8)
        node.runs("worker", "slot-0", "slot-1", gpus=(5, 6))
        [answer] = await plugin.allocate(["slot-0", "slot-1"])
        await plugin.pre_start(["slot-0", "slot-1"])
    [file] = (node.root / "cdi").iterdir()
    [device] = json.loads(file.read_bytes())["devices"]
    paths = {entry["path"] for entry in device["containerEdits"]["deviceNodes"]}
    assert answer.cdi_devices[0].name.endswith(device["name"])
    assert {f"/dev/nvidia{i}" for i in range(8)} & paths == {"/dev/nvidia5", "/dev/nvidia6"}


async def test_metrics_name_no_pod_of_a_tenant(node, unused_tcp_port):
    install_toolkit(node)
    async with agent(node, unused_tcp_port), ClientSession() as client:
        plugin = await node.offers(keys.GPU_WHOLE, 8)
        node.runs("secret", "slot-0", "slot-1", gpus=(5, 6))
        await plugin.pre_start(["slot-0", "slot-1"])

        async def metrics():
            async with client.get(f"http://127.0.0.1:{unused_tcp_port}/metrics") as response:
                return await response.text()

        async def holders():
            return re.findall(r"^linkwise_gpu_holder\{(.*)\} 1", await metrics(), re.MULTILINE)

        await until_true(holders)
        uuids = [card.uuid for card in node.driver.cards]
        assert sorted(await holders()) == [
            f'gpu="{i}",node="{NODE}",uid="uid-secret",uuid="{uuids[i]}"' for i in (5, 6)
        ]
        assert "secret" not in (await metrics()).replace("uid-secret", "")


async def test_a_pod_without_a_record_does_not_start(node):
    install_toolkit(node)
    async with agent(node):
        plugin = await node.offers(keys.GPU_WHOLE, 8)
        node.runs("forged", "slot-3")
        with pytest.raises(grpc.aio.AioRpcError, match="no GPUs are recorded"):
            await plugin.pre_start(["slot-3"])
    assert [reason for reason, _ in node.api.events] == ["GPUsNotBound"]


async def test_a_driver_that_is_installed_later_is_found(node):
    install_toolkit(node)
    library = node.root / "host/usr/lib/libnvidia-ml.so.1"
    # As Debian's alternatives, by links that are made for the root of the host.
    driver = node.root / "host/opt/driver/libnvidia-ml.so.535"
    driver.parent.mkdir(parents=True)
    library.rename(driver)
    async with agent(node):
        await until(lambda: "NoGPUsOffered" in dict(node.api.events))
        message = dict(node.api.events)["NoGPUsOffered"]
        assert "libnvidia-ml.so.1 is not below" in message
        assert "the agent searches it again" in message
        library.symlink_to("/etc/alternatives/nvml")
        (node.root / "host/etc/alternatives").mkdir()
        (node.root / "host/etc/alternatives/nvml").symlink_to("/opt/driver/libnvidia-ml.so.535")
        await node.offers(keys.GPU_WHOLE, 8)


async def test_a_lost_gpu_is_published_and_withdrawn(node):
    install_toolkit(node)
    async with agent(node):
        plugin = await node.offers(keys.GPU_WHOLE, 8)
        node.driver.lose(3)
        await until(lambda: node.unhealthy() == {3})
        await until(lambda: len(plugin.unhealthy()) == 1)
        await until(lambda: "GPUUnhealthy" in dict(node.api.events))
        node.driver.restore(3)
        node.driver.xid(4, 79)
        await until(lambda: 4 in node.unhealthy())


async def test_a_gpu_with_a_process_of_a_deleted_pod_is_withdrawn(node, monkeypatch):
    install_toolkit(node)
    monkeypatch.setattr("agent.__main__.LastHolders", partial(LastHolders, patience=0))
    async with agent(node):
        plugin = await node.offers(keys.GPU_WHOLE, 8)
        node.runs("old", "slot-0", gpus=(2,))
        node.api.pods["old"]["metadata"]["uid"] = UID
        await plugin.pre_start(["slot-0"])
        process = a_process(node.root / "proc", 7)
        node.kubelet.listed.ClearField("pod_resources")
        del node.api.pods["old"]
        await until(lambda: node.unhealthy() == {2})
        await until(lambda: "GPUUnhealthy" in dict(node.api.events))
        await until(lambda: len(plugin.unhealthy()) == 1)

        shutil.rmtree(process)
        await until(lambda: node.unhealthy() == set())


async def is_ready(client, port):
    try:
        async with client.get(f"http://127.0.0.1:{port}/readyz") as answer:
            return answer.status == 200
    except ClientError:
        return False


async def test_on_a_claims_node_the_agent_offers_nothing_and_publishes_busy_gpus(
    node, unused_tcp_port
):
    node.api.put_node(**{keys.NODE_MODE: "topology", keys.RESOURCE_NAME: keys.DRA_GPU_DRIVER})
    kubelet = Settings.read(environment_of(node)).paths.kubelet
    kubelet.mkdir(parents=True)
    (kubelet / STATE_FILE).write_bytes(state_of(claim_of("gpu-1", pods=(UID,))))
    a_process(node.root / "proc", 7)
    node.driver.set_processes(1, [7])
    node.driver.set_processes(2, [7])
    async with agent(node, unused_tcp_port), ClientSession() as client:
        await until(lambda: node.api.published("busy"))
        await until_true(partial(is_ready, client, unused_tcp_port))
    assert node.api.published("busy").keys() == {node.driver.cards[2].uuid}
    assert "mismatch" not in node.api.config_maps[MAP]["data"]
    assert node.kubelet.plugins == {}
    assert [reason for reason, _ in node.api.events] == ["GPUProcessMismatch"]


async def test_busy_gpus_stay_closed_until_an_audit_finds_no_process_there(node, unused_tcp_port):
    stored = {"metadata": {"name": MAP}, "data": {"busy": '{"GPU-x": "process 7 of the host"}'}}
    node.api.config_maps[MAP] = stored
    node.api.put_node(**{keys.NODE_MODE: "topology", keys.RESOURCE_NAME: keys.DRA_GPU_DRIVER})
    # Without the kubelet's list of claims no audit succeeds.
    async with agent(node, unused_tcp_port), ClientSession() as client:
        await until_true(partial(is_ready, client, unused_tcp_port))
        assert node.api.config_maps[MAP] is stored


async def test_a_node_without_a_specification_offers_nothing(node):
    async with agent(node):
        await until(lambda: "NoGPUsOffered" in dict(node.api.events))
        assert "nvidia-ctk" in dict(node.api.events)["NoGPUsOffered"]
        assert node.kubelet.plugins == {}
        await until(lambda: node.api.published("devices"))


async def test_a_mode_in_use_is_switched_when_its_containers_end(node):
    install_toolkit(node)
    async with agent(node):
        await node.offers(keys.GPU_WHOLE, 8)
        node.runs("worker", "slot-0", gpus=(0,))
        node.api.put_node(**{keys.NODE_MODE: "core_mem"})
        await until(lambda: "ModeNotSwitched" in dict(node.api.events))
        assert keys.GPU_MEM not in node.kubelet.plugins
        node.kubelet.listed.ClearField("pod_resources")
        node.api.put_node(**{keys.NODE_MODE: "core_mem", "other": "label"})
        memory = sum(card.memory for card in node.driver.cards) >> 30
        await node.offers(keys.GPU_MEM, memory)
        await node.offers(keys.GPU_CORE, 800)


async def test_the_mode_in_use_is_published_while_containers_have_devices(node):
    install_toolkit(node)
    async with agent(node):
        plugin = await node.offers(keys.GPU_WHOLE, 8)
        await until(lambda: node.api.mode_in_use() == "none")
        node.runs("worker", "slot-0", gpus=(0,))
        await plugin.pre_start(["slot-0"])
        await until(lambda: node.api.mode_in_use() == "topology")
        node.kubelet.listed.ClearField("pod_resources")
        del node.api.pods["worker"]
        node.api.put_node(**{keys.NODE_MODE: "topology", "other": "label"})
        await until(lambda: node.api.mode_in_use() == "none")


async def test_the_timer_that_ends_the_process_is_set_while_the_plugins_answer(node):
    install_toolkit(node)
    times = []
    async with agent(node, set_timer=times.append):
        await node.offers(keys.GPU_WHOLE, 8)
        await until(lambda: times)
    assert set(times) == {LIMIT}


async def test_an_agent_that_is_stopped_is_ended(node):
    install_toolkit(node)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "agent", env={**os.environ, **environment_of(node)}
    )
    try:
        await node.offers(keys.GPU_WHOLE, 8)
        process.send_signal(signal.SIGSTOP)
        async with asyncio.timeout(LIMIT + PATIENCE):
            assert await process.wait() == -signal.SIGKILL
    finally:
        with suppress(ProcessLookupError):
            process.kill()


@pytest.mark.parametrize("book", ["binding", "checkpoint"])
async def test_a_restarted_kubelet_switches_no_mode_that_is_in_use(node, book):
    install_toolkit(node)
    async with agent(node):
        plugin = await node.offers(keys.GPU_WHOLE, 8)
        node.runs("worker", "slot-0", gpus=(0,))
        if book == "binding":
            await plugin.pre_start(["slot-0"])
        else:
            a_process(node.root / "proc", 7)
            node.allocates(UID, "slot-0")
        # A kubelet that has just started lists nothing.
        node.kubelet.listed.ClearField("pod_resources")
        node.api.put_node(**{keys.NODE_MODE: "core_mem"})
        await until(lambda: "ModeNotSwitched" in dict(node.api.events))
        assert keys.GPU_MEM not in node.kubelet.plugins
        if book == "binding":
            del node.api.pods["worker"]
        else:
            shutil.rmtree(node.root / "proc/7")
        node.api.put_node(**{keys.NODE_MODE: "core_mem", "other": "label"})
        await node.offers(keys.GPU_CORE, 800)


async def test_a_replaced_driver_ends_the_process(node):
    install_toolkit(node)
    async with agent(node) as running:
        await node.offers(keys.GPU_WHOLE, 8)
        node.driver.unload_driver(VERSION_MISMATCH)
        await asyncio.wait((running,))
        with pytest.raises(ExceptionGroup) as raised:
            running.result()
    assert raised.group_contains(DriverReplacedError)


async def test_a_lost_gpu_is_published_while_a_specification_is_generated(node, monkeypatch):
    install_program(node, "nvidia-ctk")
    # It ends with the test.
    monkeypatch.setattr("agent.__main__.Toolkit", partial(Toolkit, timeout=3600))
    async with agent(node):
        await until(lambda: node.api.published("devices"))
        node.driver.lose(3)
        await until(lambda: node.unhealthy() == {3})
        assert node.kubelet.plugins == {}


async def test_a_node_that_is_registered_again_is_published_again(node):
    install_toolkit(node)
    async with agent(node):
        await until(lambda: node.api.published("devices"))
        node.api.put_node(uid="uid-2", **{keys.NODE_MODE: "topology"})
        await until(lambda: owner(node) == "uid-2")


async def test_a_driver_that_the_library_does_not_fit_is_an_event(node):
    node.driver.unload_driver(VERSION_MISMATCH)
    async with agent(node) as running:
        await asyncio.wait((running,))
        with pytest.raises(ExceptionGroup):
            running.result()
    assert "restart the agent" in dict(node.api.events)["NoGPUsOffered"]


async def test_an_agent_is_ready_when_the_kubelet_has_its_resources(node, unused_tcp_port):
    install_toolkit(node)
    node.kubelet.refused = "not now"
    async with agent(node, unused_tcp_port), ClientSession() as client:

        async def readiness():
            async with client.get(f"http://127.0.0.1:{unused_tcp_port}/readyz") as response:
                return response.status, await response.text()

        await until_true(partial(says, readiness, "has not registered aliyun.com/gpu"))
        node.kubelet.refused = None
        await until_true(partial(says, readiness, "", 200))


async def says(readiness, text, expected=503):
    with suppress(ClientError):
        code, body = await readiness()
        return code == expected and text in body
    return False


def owner(node):
    (reference,) = node.api.config_maps[MAP]["metadata"]["ownerReferences"]
    return reference["uid"]


def install_program(node, name):
    """Install a program on the host that does not end."""
    if os.geteuid() or platform.machine() != "x86_64":
        pytest.skip("needs root and x86-64")
    source = node.root / "program.c"
    source.write_text('void _start(void) { for (;;) __asm__ volatile("syscall" :: "a"(34)); }')
    folder = node.root / "host/usr/bin"
    folder.mkdir(parents=True)
    command = [compiler(), "-nostdlib", "-static", "-o", folder / name, source]
    subprocess.run(command, check=True)
