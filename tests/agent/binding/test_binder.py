"""CDI files of containers, from the record of the pod to the file."""

import asyncio
import json
import os
import shutil
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import pytest
from aiohttp import web
from support.gpu_readings import gpu, reading
from support.nvidia_cdi import as_yaml, nvidia_spec
from support.proc_files import UID, a_process
from support.servers.fake_api import FakeAPI, status
from support.waiting import until

from agent.audit.proc import running_pods
from agent.binding.binder import Binder
from agent.binding.cdi_spec import Edits, Mount
from agent.binding.errors import BindError
from agent.binding.holder import Holders
from agent.binding.last_holders import LastHolders
from agent.binding.names import device_name, file_name
from agent.binding.node_spec import NodeSpec, Toolkit
from agent.kubelet.call import KubeletError
from agent.kubelet.container_devices import ContainerDevices
from linkwise.cluster.keys import ALLOCATION, CDI_BINDING
from linkwise.runtime.kube.client import Kube
from linkwise.runtime.kube.event_recorder import EventRecorder
from linkwise.runtime.process.backoff import Backoff

WHOLE, SHARE = "aliyun.com/gpu", "aliyun.com/gpu-mem"


class PodAPI(FakeAPI):
    """Serves pods by name and as a list; creates Events."""

    async def _list(self, request):
        name = request.path.partition("/pods/")[2]
        if not name:
            return await super()._list(request)
        if name not in self.objects:
            return await status(404, "NotFound", f'pods "{name}" not found')(request)
        return web.json_response(self.objects[name])

    @property
    def events(self):
        bodies = [json.loads(body) for _, path, _, body in self.calls if path.endswith("/events")]
        return [
            (body["involvedObject"]["name"], body["reason"], body["message"]) for body in bodies
        ]


class Kubelet:
    """The books of a kubelet: PodResources and the checkpoint."""

    def __init__(self, checkpoint):
        self.checkpoint, self.listed, self.entries = checkpoint, [], []
        self.listed_pods = {}
        """Names of all pods, with their namespaces."""
        self.fault = None
        self.asked = asyncio.Event()
        self.asks = []
        self.answers = asyncio.Event()
        self.answers.set()

    async def list(self):
        listed = tuple(self.listed)
        self.asked.set()
        self.asks.append(listed)
        await self.answers.wait()
        if self.fault:
            raise KubeletError(self.fault)
        return listed

    async def pods(self):
        return tuple((namespace, name) for name, namespace in self.listed_pods.items())

    def allocate(self, pod, container, *ids, resource=WHOLE, uid=None, early=False):
        self.listed_pods[pod] = "ns"
        if not early:
            self.listed.append(ContainerDevices("ns", pod, container, resource, frozenset(ids)))
        self.entries.append(
            {
                "PodUID": uid or f"uid-{pod}",
                "ContainerName": container,
                "ResourceName": resource,
                "DeviceIDs": {"-1": list(ids)},
                "AllocResp": "",
            }
        )
        data = {"PodDeviceEntries": self.entries, "RegisteredDevices": {WHOLE: []}}
        self.checkpoint.write_text(json.dumps({"Data": data, "Checksum": 1}))

    def end(self, pod):
        self.listed = [devices for devices in self.listed if devices.pod != pod]


class Node:
    """A node whose parts are real but for the kubelet and the API server."""

    def __init__(self, root, api, kube):
        self.root, self.api, self.kube = root, api, kube
        self.folder = root / "cdi"
        self.kubelet = Kubelet(root / "kubelet_internal_checkpoint")
        self.reading = reading()
        self.nvidia = root / "etc"
        self.nvidia.mkdir()
        (self.nvidia / "nvidia.yaml").write_bytes(as_yaml(nvidia_spec(self.reading.gpus)))
        self.extra = Edits()
        self.recorder = EventRecorder(kube, "linkwise-agent", "n1", lambda: 0.0)
        self.proc = root / "proc"
        self.proc.mkdir()
        self.patience, self.now = 60.0, 0.0
        self.node_spec = NodeSpec(
            (self.nvidia,), Toolkit(root, root / "none", "/none"), Backoff(60, 60, lambda: None)
        )
        self.binder = self.restarted()

    def restarted(self):
        return Binder(
            Holders("n1", self.kubelet, self.kubelet.checkpoint, self.kube, self.last_holders()),
            self.recorder,
            lambda: self.reading,
            self.node_spec,
            self.folder,
            extra_edits=self.extra_edits,
        )

    def last_holders(self):
        running = partial(running_pods, proc=self.proc)
        return LastHolders(running, lambda: self.now, patience=self.patience)

    async def events(self):
        """Return the Events, once all are created."""
        await until(lambda: not self.recorder._queue.size("ns"))
        return self.api.events

    async def extra_edits(self, _pod, _container, _gpus):
        return self.extra

    def pod(self, name, gpus, *containers, init=(), uid=None, phase="Running", **fields):
        record = json.dumps({"v": 1, "node": "n1", "gpus": gpus, **fields})
        self.api.put(
            name,
            metadata={
                "name": name,
                "namespace": "ns",
                "uid": uid or f"uid-{name}",
                "annotations": {ALLOCATION: record} if gpus else {},
            },
            spec={"containers": list(containers), "initContainers": list(init), "nodeName": "n1"},
            status={"phase": phase},
        )

    async def bind(self, *ids, resource=WHOLE):
        await self.binder.bind(resource, ids)

    def file(self, *ids, resource=WHOLE):
        return self.folder / file_name(device_name(resource, ids))

    def edits(self, *ids, resource=WHOLE):
        return json.loads(self.file(*ids, resource=resource).read_text())["devices"][0][
            "containerEdits"
        ]

    def gpus(self, *ids, resource=WHOLE):
        paths = [node["path"] for node in self.edits(*ids, resource=resource)["deviceNodes"]]
        return sorted(
            int(path.removeprefix("/dev/nvidia"))
            for path in paths
            if path.removeprefix("/dev/nvidia").isdigit()
        )

    async def held(self):
        return {
            (b.pod, b.container): [gpu.i for gpu in b.gpus] for b in await self.binder.bindings()
        }

    def files(self):
        return {path.name for path in self.folder.iterdir()} if self.folder.exists() else set()


@pytest.fixture
async def node(tmp_path):
    async with PodAPI() as api, Kube(api.url) as kube:
        node = Node(tmp_path, api, kube)
        await node.node_spec.refresh(node.reading)
        recording = asyncio.create_task(node.recorder.run())
        yield node
        recording.cancel()


async def disconnect(request):
    request.transport.close()


def container(name="main", amount=1, resource=WHOLE, **fields):
    return {"name": name, "resources": {"limits": {resource: str(amount)}}, **fields}


def whole(*indices):
    return [{"i": i, "uuid": f"GPU-{i}"} for i in indices]


def running(node, name, gpu, *ids, **fields):
    node.pod(name, whole(gpu), container(), **fields)
    node.kubelet.allocate(name, "main", *ids, uid=fields.get("uid"))


async def test_a_container_has_the_recorded_gpus_whatever_its_slots_are(node):
    node.pod("a", whole(3, 1), container(amount=2))
    node.kubelet.allocate("a", "main", "slot-0", "slot-2")
    await node.bind("slot-2", "slot-0")

    assert node.gpus("slot-0", "slot-2") == [1, 3]
    assert await node.held() == {("a", "main"): [3, 1]}
    assert await node.events() == []


async def test_a_forged_environment_is_replaced(node):
    forged = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    node.pod("a", whole(0), container(env=forged))
    node.kubelet.allocate("a", "main", "slot-0")
    node.extra = Edits(env=("NVIDIA_VISIBLE_DEVICES=all",))
    await node.bind("slot-0")

    env = node.edits("slot-0")["env"]
    assert [each for each in env if each.startswith("NVIDIA_VISIBLE")] == [
        "NVIDIA_VISIBLE_DEVICES=void"
    ]


async def test_a_client_of_mps_has_its_limits_and_the_folders_of_the_daemon(node):
    running(node, "a", 0, "slot-0")
    node.extra = Edits(env=("CUDA_MPS_X=40",), mounts=(Mount("/run/mps/shm", "/mps/shm", ("rw",)),))
    await node.bind("slot-0")

    edits = node.edits("slot-0")
    assert "CUDA_MPS_X=40" in edits["env"]
    assert edits["mounts"][-1] == {
        "hostPath": "/run/mps/shm",
        "containerPath": "/mps/shm",
        "options": ["rw"],
    }


async def test_shares_of_two_pods_have_one_gpu(node):
    for name in ("a", "b"):
        node.pod(name, [{"i": 1, "mem": 4}], container(resource=SHARE, amount=4))
        node.kubelet.allocate(name, "main", f"{name}-0", resource=SHARE)
        await node.bind(f"{name}-0", resource=SHARE)

    assert node.gpus("a-0", resource=SHARE) == node.gpus("b-0", resource=SHARE) == [1]
    assert await node.held() == {("a", "main"): [1], ("b", "main"): [1]}


async def test_containers_sidecars_and_init_containers_have_their_parts(node):
    node.pod(
        "a",
        whole(2, 0, 3),
        container("main"),
        container("second"),
        init=[container("fetch", 3), container("proxy", restartPolicy="Always")],
    )
    node.kubelet.allocate("a", "fetch", "s0", "s1", "s2", early=True)
    for name, slot in (("proxy", "s2"), ("main", "s1"), ("second", "s0")):
        node.kubelet.allocate("a", name, slot)
    await node.bind("s0", "s1", "s2")
    for slot in ("s2", "s1", "s0"):
        await node.bind(slot)

    assert node.gpus("s0", "s1", "s2") == [0, 2, 3]
    assert [node.gpus(slot) for slot in ("s1", "s0", "s2")] == [[2], [0], [3]]
    assert len(await node.held()) == 4


async def test_an_init_container_with_the_devices_of_an_app_container_has_its_gpus(node):
    node.pod("a", whole(2, 0), container("x"), container("y"), init=[container("fetch")])
    node.kubelet.allocate("a", "fetch", "s0", early=True)
    node.kubelet.allocate("a", "x", "s1")
    node.kubelet.allocate("a", "y", "s0")
    await node.bind("s0")

    assert node.gpus("s0") == [0]


async def test_a_restarted_container_keeps_its_gpus(node):
    running(node, "a", 2, "slot-0")
    await node.bind("slot-0")
    before = node.file("slot-0").read_bytes()
    await node.bind("slot-0")

    assert node.file("slot-0").read_bytes() == before
    assert await node.held() == {("a", "main"): [2]}


async def test_a_container_has_its_gpus_again_after_a_reboot_of_the_node(node):
    running(node, "a", 2, "slot-0")
    await node.bind("slot-0")
    node.file("slot-0").unlink()
    node.folder.rmdir()
    node.binder = node.restarted()
    await node.bind("slot-0")

    assert node.gpus("slot-0") == [2]


async def test_ids_that_the_next_pod_has_get_its_gpus(node):
    running(node, "a", 2, "slot-0")
    await node.bind("slot-0")
    node.kubelet.end("a")
    node.api.remove("a")
    running(node, "b", 3, "slot-0")
    await node.bind("slot-0")

    assert node.gpus("slot-0") == [3]
    assert await node.held() == {("b", "main"): [3]}


async def test_the_next_pod_has_the_gpu_of_one_that_is_gone(node):
    running(node, "a", 2, "slot-0")
    await node.bind("slot-0")
    node.kubelet.end("a")
    node.api.remove("a")
    running(node, "b", 2, "slot-1")
    await node.bind("slot-1")

    assert node.gpus("slot-1") == [2]
    assert not node.file("slot-0").exists()


@pytest.mark.parametrize("restarted", [False, True], ids=["same agent", "restarted agent"])
async def test_a_gpu_of_a_running_container_is_refused_to_another_pod(node, restarted):
    running(node, "a", 2, "slot-0")
    await node.bind("slot-0")
    running(node, "b", 2, "slot-1")
    if restarted:
        node.binder = node.restarted()
    with pytest.raises(BindError, match="GPU 2 belongs to container main of pod ns/a"):
        await node.bind("slot-1")

    assert node.files() == {node.file("slot-0").name}
    ((about, reason, message),) = await node.events()
    assert (about, reason) == ("b", "GPUsNotBound")
    assert "container main: GPU 2 belongs" in message


async def test_a_gpu_is_refused_while_the_kubelet_has_not_listed_its_pods_yet(node):
    running(node, "a", 2, "slot-0")
    await node.bind("slot-0")
    node.kubelet.end("a")
    running(node, "b", 2, "slot-1")
    with pytest.raises(BindError, match="belongs to"):
        await node.bind("slot-1")


async def test_pods_that_start_together_never_both_have_one_gpu(node):
    running(node, "old", 2, "slot-9")
    await node.bind("slot-9")
    node.kubelet.end("old")
    node.api.remove("old")
    for name, slot in (("a", "slot-0"), ("b", "slot-1"), ("c", "slot-2")):
        running(node, name, 2, slot)
    results = await asyncio.gather(
        *(node.bind(slot) for slot in ("slot-0", "slot-1", "slot-2")), return_exceptions=True
    )

    assert [type(result) for result in results].count(BindError) == 2
    assert len(node.files()) == 1


@pytest.mark.parametrize(
    ("prepare", "reason"),
    [
        pytest.param(lambda n: n.pod("a", None, container()), "bypassed", id="no record"),
        pytest.param(
            lambda n: n.pod("a", whole(0), container(), v=7), "unreadable", id="unreadable record"
        ),
        pytest.param(
            lambda n: setattr(n, "reading", reading(gpu(0, fault="lost"))), "lost", id="lost GPU"
        ),
        pytest.param(
            lambda n: setattr(n, "reading", reading(gpu(0, uuid="GPU-x"))), "GPU-x", id="new GPU"
        ),
        pytest.param(
            lambda n: setattr(n, "reading", reading(gpu(0, minor=9))),
            "specification does not fit",
            id="specification of another driver",
        ),
        pytest.param(
            lambda n: setattr(n.node_spec, "spec", None) or setattr(n.node_spec, "reason", "why"),
            "why",
            id="no specification",
        ),
    ],
)
async def test_a_refused_container_has_no_file_and_its_pod_an_event(node, prepare, reason):
    running(node, "a", 0, "slot-0")
    await node.bind("slot-0")
    prepare(node)
    with pytest.raises(BindError, match=reason):
        await node.bind("slot-0")

    assert node.files() == set()
    ((about, _, message),) = await node.events()
    assert about == "a"
    assert reason in message


async def test_devices_without_a_container_are_refused(node):
    with pytest.raises(BindError, match="no container of the kubelet's books holds the devices s0"):
        await node.bind("s0")


async def test_a_pod_that_is_gone_is_refused(node):
    node.kubelet.allocate("a", "main", "slot-0")
    with pytest.raises(BindError, match="not found"):
        await node.bind("slot-0")


async def test_a_silent_kubelet_refuses_a_start_and_ends_no_binding(node):
    running(node, "a", 0, "slot-0")
    running(node, "b", 1, "slot-1")
    await node.bind("slot-0")
    node.kubelet.fault = "no answer"
    for call in (node.bind("slot-1"), node.binder.bindings()):
        with pytest.raises(BindError, match="no answer"):
            await call

    assert node.files() == {node.file("slot-0").name}


async def test_a_container_is_bound_without_a_scan_of_the_files_of_others(node, monkeypatch):
    running(node, "a", 2, "slot-0")
    await node.bind("slot-0")
    scans = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: scans.append(path) or scandir(path))
    running(node, "b", 3, "slot-1")
    running(node, "c", 3, "slot-2")
    await node.bind("slot-1")
    with pytest.raises(BindError, match="GPU 3 belongs"):
        await node.bind("slot-2")

    assert scans == []


async def test_an_unwritable_folder_refuses_a_start(node):
    running(node, "a", 0, "slot-0")
    node.folder.write_text("a file, not a folder")
    with pytest.raises(BindError, match=f"let the agent write to {node.folder}"):
        await node.bind("slot-0")

    assert [about for about, _, _ in await node.events()] == ["a"]


async def test_a_file_that_cannot_be_removed_hides_no_other_binding(node):
    for i in range(2):
        running(node, f"p{i}", i, f"slot-{i}")
        await node.bind(f"slot-{i}")
    node.kubelet.end("p0")
    node.api.remove("p0")
    with immutable(node.file("slot-0")):
        assert await node.held() == {("p1", "main"): [1]}
        assert node.file("slot-0").exists()
    assert await node.held() == {("p1", "main"): [1]}
    assert not node.file("slot-0").exists()


@contextmanager
def immutable(file):
    """Keep a file from being removed, also by root: a folder is no file."""
    content = file.read_bytes()
    file.unlink()
    file.mkdir()
    (file / "kept").touch()
    yield
    (file / "kept").unlink()
    file.rmdir()
    file.write_bytes(content)


@pytest.mark.parametrize("fault", [status(503), status(429)], ids=["503", "429"])
@pytest.mark.parametrize("restarted", [False, True], ids=["same agent", "restarted agent"])
async def test_a_container_keeps_its_gpus_while_the_api_server_is_away(node, fault, restarted):
    running(node, "a", 2, "slot-0")
    await node.bind("slot-0")
    if restarted:
        node.binder = node.restarted()
    node.api.faults["list"].append(fault)
    await node.bind("slot-0")

    assert node.gpus("slot-0") == [2]


async def test_an_init_container_keeps_its_gpus_while_the_api_server_is_away(node):
    node.pod("a", whole(2, 1), container("main"), init=[container("fetch", 2)])
    node.kubelet.allocate("a", "fetch", "s0", "s1", early=True)
    node.kubelet.allocate("a", "main", "s0")
    await node.bind("s0", "s1")
    await node.api.stop()
    await node.bind("s0", "s1")

    assert node.gpus("s0", "s1") == [1, 2]


@pytest.mark.parametrize(
    ("prepare", "reason"),
    [
        pytest.param(lambda n: n.file("slot-0").unlink(), "cannot be asked", id="no file"),
        pytest.param(
            lambda n: n.file("slot-0").write_text("{}"), "cannot be asked", id="changed file"
        ),
        pytest.param(
            lambda n: (n.kubelet.end("a"), n.kubelet.allocate("b", "main", "slot-0")),
            "cannot be asked",
            id="another pod",
        ),
        pytest.param(
            lambda n: (
                n.kubelet.entries.clear(),
                n.kubelet.allocate("a", "main", "slot-0", uid="uid-of-the-next"),
            ),
            "cannot be asked",
            id="the next pod of this name",
        ),
        pytest.param(
            lambda n: setattr(n, "reading", reading(gpu(0), gpu(1), gpu(2, fault="lost"))),
            "lost",
            id="lost GPU",
        ),
    ],
)
async def test_nothing_is_kept_for_another_container_or_a_lost_gpu(node, prepare, reason):
    running(node, "a", 2, "slot-0")
    await node.bind("slot-0")
    prepare(node)
    await node.api.stop()
    with pytest.raises(BindError, match=reason):
        await node.bind("slot-0")

    assert node.files() == set()


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(lambda n: n.api.remove("a"), id="deleted"),
        pytest.param(lambda n: n.pod("a", whole(2), container(), phase="Succeeded"), id="ended"),
        pytest.param(lambda n: n.pod("a", whole(2), container(), uid="new"), id="replaced"),
        pytest.param(
            lambda n: (n.pod("a", whole(2), container()), n.kubelet.allocate("a", "main", "other")),
            id="with other devices now",
        ),
    ],
)
async def test_files_of_containers_that_are_gone_are_removed(node, end):
    running(node, "a", 2, "slot-0")
    await node.bind("slot-0")
    node.kubelet.end("a")
    end(node)

    assert await node.held() == {}
    assert node.files() == set()


async def test_a_pod_that_the_kubelet_does_not_list_yet_keeps_its_file(node):
    running(node, "a", 2, "slot-0")
    await node.bind("slot-0")
    node.kubelet.end("a")
    assert await node.held() == {("a", "main"): [2]}

    node.api.faults["list"].append(status(503))
    assert await node.held() == {("a", "main"): [2]}


async def test_a_file_that_is_replaced_during_the_listing_is_kept(node):
    running(node, "a", 2, "slot-0")
    await node.bind("slot-0")
    node.kubelet.end("a")
    node.api.remove("a")
    node.kubelet.answers.clear()
    node.kubelet.asked.clear()
    collecting = asyncio.create_task(node.binder.bindings())
    await node.kubelet.asked.wait()
    running(node, "b", 3, "slot-0")
    binding = asyncio.create_task(node.bind("slot-0"))
    node.kubelet.answers.set()
    await asyncio.gather(binding, collecting)

    assert node.gpus("slot-0") == [3]


async def test_files_of_other_vendors_are_never_touched(node):
    node.folder.mkdir()
    for name in ("nvidia.yaml", "other.json"):
        (node.folder / name).write_text("x")
    running(node, "a", 2, "slot-0")
    await node.bind("slot-0")
    node.kubelet.end("a")
    node.api.remove("a")
    await node.held()

    assert node.files() == {"nvidia.yaml", "other.json"}


async def test_a_changed_file_is_removed_unless_a_container_holds_its_devices(node):
    for name, slot in (("a", "slot-0"), ("b", "slot-1")):
        running(node, name, int(slot[-1]), slot)
        await node.bind(slot)
        node.file(slot).write_text("{}")
    node.kubelet.end("b")

    assert await node.held() == {}
    assert node.files() == {node.file("slot-0").name}


async def test_annotation_names_the_holder_of_the_gpus(node):
    running(node, "a", 2, "slot-0")
    await node.bind("slot-0")
    annotations = json.loads(node.file("slot-0").read_text())["annotations"]

    assert json.loads(annotations[CDI_BINDING]) == {
        "namespace": "ns",
        "pod": "a",
        "uid": "uid-a",
        "container": "main",
        "resource": WHOLE,
        "device_ids": ["slot-0"],
        "gpus": [{"i": 2, "uuid": "GPU-2", "mem": None, "core": None}],
    }


async def test_the_next_pod_of_a_name_does_not_keep_the_gpu_of_the_one_before(node):
    running(node, "a", 2, "slot-0")
    await node.bind("slot-0")
    node.kubelet.end("a")
    node.kubelet.entries.clear()
    running(node, "a", 3, "slot-0", uid="uid-of-the-next")
    running(node, "b", 2, "slot-1")
    await node.bind("slot-1")

    assert await node.held() == {("b", "main"): [2]}


async def test_a_container_of_a_replaced_pod_does_not_get_the_gpus_of_the_next(node):
    running(node, "a", 2, "slot-0")
    node.pod("a", whole(3), container(), uid="uid-of-the-next")
    with pytest.raises(BindError, match="replaced by one of the same name"):
        await node.bind("slot-0")

    assert node.files() == set()


async def test_a_conflict_names_no_pod_of_another_namespace(node):
    running(node, "a", 2, "slot-0")
    await node.bind("slot-0")
    file = node.file("slot-0")
    file.write_text(file.read_text().replace(r"\"ns\"", r"\"secret\""))
    node.kubelet.listed[0] = replace(node.kubelet.listed[0], namespace="secret")
    node.binder = node.restarted()
    running(node, "b", 2, "slot-1")
    with pytest.raises(BindError, match="a container of another namespace") as refused:
        await node.bind("slot-1")

    assert "secret" not in str(refused.value)
    ((_, _, message),) = await node.events()
    assert "secret" not in message


async def test_pods_of_init_containers_are_read_once(node):
    amounts = range(1, 5)
    node.pod(
        "a",
        whole(*range(4)),
        container("main", 4),
        init=[container(f"init-{amount}", amount) for amount in amounts],
    )
    for amount in amounts:
        ids = [f"s{i}" for i in range(amount)]
        node.kubelet.allocate("a", f"init-{amount}", *ids, early=True)
        await node.bind(*ids)
    node.api.queries.clear()
    assert len(await node.held()) == 4

    assert len(node.api.queries) == 1


async def test_an_unreachable_api_server_is_asked_once_for_all_containers(node):
    for i in range(4):
        running(node, f"p{i}", i, f"slot-{i}")
        await node.bind(f"slot-{i}")
    node.kubelet.listed.clear()
    node.api.queries.clear()
    for _ in range(4):
        node.api.faults["list"].append(disconnect)
    assert len(await node.held()) == 4

    # aiohttp sends a request twice if its connection was closed.
    assert len(node.api.queries) == 2


async def test_the_pod_of_an_init_container_is_found_beside_an_unreadable_one(node):
    node.api.put(
        "odd", metadata={"name": "odd", "namespace": "ns", "uid": "x"}, spec={"containers": 7}
    )
    node.pod("a", whole(2, 1), container("main"), init=[container("fetch", 2)])
    node.kubelet.allocate("a", "fetch", "s0", "s1", early=True)
    await node.bind("s0", "s1")

    assert node.gpus("s0", "s1") == [1, 2]


async def test_large_pods_of_others_do_not_keep_an_init_container_from_starting(node):
    """An API server stores up to 1.5 MiB of a pod; its JSON may be several times as long."""
    for i in range(4):
        large = {"uid": f"uid-a{i}", "annotations": {"a": 9_000_000 * "x"}}
        node.api.put(f"a{i}", metadata=large)
        node.kubelet.listed_pods[f"a{i}"] = "ns"
    node.pod("b", whole(2, 1), container("main"), init=[container("fetch", 2)])
    node.kubelet.allocate("b", "fetch", "s0", "s1", early=True)
    await node.bind("s0", "s1")

    assert node.gpus("s0", "s1") == [1, 2]


async def test_pods_of_a_node_are_read_one_after_the_other(node):
    reading = most = 0

    async def counted(_request):
        nonlocal reading, most
        reading += 1
        most = max(most, reading)
        await asyncio.sleep(0.01)
        reading -= 1

    for i in range(8):
        node.pod(f"a{i}", [], container("main"))
        node.kubelet.listed_pods[f"a{i}"] = "ns"
        node.api.faults["list"].append(counted)
    node.kubelet.listed_pods["gone"] = "ns"
    node.pod("b", whole(2, 1), container("main"), init=[container("fetch", 2)])
    node.kubelet.allocate("b", "fetch", "s0", "s1", early=True)
    await node.bind("s0", "s1")

    assert (len(node.api.queries), most) == (11, 1)


async def test_of_many_pods_the_one_with_devices_of_the_same_uid_is_read_first(node):
    for i in range(8):
        node.pod(f"a{i}", [], container("main"))
        node.kubelet.listed_pods[f"a{i}"] = "ns"
    node.pod("b", whole(2, 1), container("main"), init=[container("fetch", 2)])
    node.kubelet.allocate("b", "fetch", "s0", "s1", early=True)
    node.kubelet.allocate("b", "main", "s0")
    await node.bind("s0", "s1")

    assert len(node.api.queries) == 2


async def test_containers_that_start_together_are_bound_a_few_at_a_time(node):
    together, most = 0, 0

    async def counted(_request):
        nonlocal together, most
        together += 1
        most = max(most, together)
        await asyncio.sleep(0.01)
        together -= 1

    for i in range(40):
        node.pod(f"p{i}", [{"i": 0, "mem": 1}], container(resource=SHARE))
        node.kubelet.allocate(f"p{i}", "main", f"slot-{i}", resource=SHARE)
        node.api.faults["list"].append(counted)
    await asyncio.gather(*(node.bind(f"slot-{i}", resource=SHARE) for i in range(40)))

    assert len(node.files()) == 40
    assert 1 < most <= 16


# ---- Processes of pods that are gone.

NEXT = "11111111-7f53-4a8b-9d0e-1c2d3e4f5a6b"
CGROUP = f"/kubepods/burstable/pod{UID}/{'ab' * 32}"


async def force_deleted(node, gpu=2, slot="slot-0"):
    """Bind a container whose pod is then deleted with grace period 0, while its process runs."""
    running(node, "old", gpu, slot, uid=UID)
    await node.bind(slot)
    node.kubelet.end("old")
    node.kubelet.entries.clear()
    node.api.remove("old")
    return a_process(node.proc, 7, cgroup=f"0::{CGROUP}\n")


def without_patience(node):
    node.patience = 0
    node.binder = node.restarted()


async def test_a_gpu_is_given_when_the_process_of_a_deleted_pod_has_ended(node):
    process = await force_deleted(node)
    running(node, "new", 2, "slot-1")
    binding = asyncio.create_task(node.bind("slot-1"))
    await until(lambda: len(node.kubelet.asks) > 3)
    assert not node.file("slot-1").exists()
    shutil.rmtree(process)
    await binding

    assert node.gpus("slot-1") == [2]
    assert node.files() == {node.file("slot-1").name}
    assert await node.events() == []


@pytest.mark.parametrize("collected", [False, True], ids=["at once", "after a look at the files"])
async def test_a_gpu_is_refused_while_a_process_of_a_deleted_pod_runs(node, collected):
    await force_deleted(node)
    without_patience(node)
    running(node, "new", 2, "slot-1")
    running(node, "other", 3, "slot-2")
    if collected:
        assert await node.held() == {}
    with pytest.raises(BindError, match=r"process 7 \(train\) of the deleted pod ns/old"):
        await node.bind("slot-1")
    await node.bind("slot-2")

    assert not node.file("slot-1").exists()
    assert [about for about, _, _ in await node.events()] == ["new"]


@pytest.mark.parametrize("gpu", [2, 3], ids=["same GPU", "another GPU"])
async def test_ids_of_a_deleted_pod_are_given_but_not_its_gpu(node, gpu):
    process = await force_deleted(node)
    without_patience(node)
    running(node, "new", gpu, "slot-0", uid=NEXT)
    if gpu == 2:
        with pytest.raises(BindError, match="may be in use by process 7"):
            await node.bind("slot-0")
        node.kubelet.end("new")
        node.kubelet.entries.clear()
        node.api.remove("new")
    else:
        await node.bind("slot-0")
        assert node.gpus("slot-0") == [3]
    running(node, "third", 2, "slot-1")
    without_patience(node)
    with pytest.raises(BindError, match="may be in use by process 7"):
        await node.bind("slot-1")
    shutil.rmtree(process)
    await node.bind("slot-1")

    assert node.gpus("slot-1") == [2]
    assert await node.held() == {("third", "main"): [2]} | (
        {("new", "main"): [3]} if gpu == 3 else {}
    )


async def test_the_next_pod_of_a_name_waits_for_the_processes_of_the_one_before(node):
    await force_deleted(node)
    without_patience(node)
    running(node, "old", 2, "slot-1", uid=NEXT)
    with pytest.raises(BindError, match="may be in use by process 7"):
        await node.bind("slot-1")


async def test_a_gpu_with_a_process_of_a_deleted_pod_is_faulty_after_the_patience(node):
    process = await force_deleted(node)
    node.patience = 10
    node.binder = node.restarted()
    assert await node.held() == {}
    assert node.binder.unreleased == {}
    node.now = 10
    assert await node.held() == {}
    assert node.binder.unreleased.keys() == {"GPU-2"}
    assert f"process 7 (train) of a deleted pod (uid {UID})" in node.binder.unreleased["GPU-2"]
    shutil.rmtree(process)
    assert await node.held() == {}
    assert node.binder.unreleased == {}
    assert node.files() == set()


async def test_no_gpu_of_a_deleted_pod_is_given_while_processes_cannot_be_read(node):
    await force_deleted(node)
    shutil.rmtree(node.proc)
    for slot, pod in (("slot-0", "new"), ("slot-1", "newer")):
        running(node, pod, 2, slot, uid=NEXT)
        with pytest.raises(BindError, match="the processes of the node cannot be read"):
            await node.bind(slot)

    assert node.files() == {node.file("slot-0").name}


async def test_a_container_that_is_started_again_does_not_wait_for_its_own_pod(node):
    running(node, "a", 2, "slot-0", uid=UID)
    a_process(node.proc, 7, cgroup=f"0::{CGROUP}\n")
    await node.bind("slot-0")
    await node.bind("slot-0")

    assert node.files() == {node.file("slot-0").name}
    assert await node.held() == {("a", "main"): [2]}
