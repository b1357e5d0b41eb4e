"""All components on one node: webhook, scorer, agent, kubelet, containers; and their records."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from controlplane.api import ApiError, Object, refusal
from controlplane.history import gpus
from controlplane.node.agent import Agent
from controlplane.node.cleaner import hierarchies
from controlplane.node.gpus import StandInGPUs
from controlplane.node.image import IMAGE
from controlplane.node.machine import RealNode
from controlplane.pods import Pods
from controlplane.process import NotReadyError, wait_for, wait_until
from controlplane.scorer import Scorer

from agent.binding.container_spec import Binding, read_binding
from agent.binding.names import is_ours
from agent.kubelet.pod_resources import PodResources
from linkwise.cluster import keys

_REPORT = """
for file in /dev/nvidia[0-9]*; do [ ! -e "$file" ] || echo "device ${file#/dev/nvidia}"; done
for file in /run/gpus/*; do [ ! -e "$file" ] || echo "uuid $(cat "$file")"; done
for file in /usr/lib/x86_64-linux-gnu/libcuda.so.*; do
  [ ! -e "$file" ] || echo "driver ${file#*libcuda.so.}"
done
env | sed 's/^/env /'
echo reported
"""
PATIENCE = 180
"""How long to wait for a container [s]."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The GPUs and variables that a container has printed."""

    devices: set[int]
    """The minors of its GPUs' device nodes."""
    uuids: set[str]
    drivers: set[str]
    """The versions of the driver's libraries."""
    variables: Mapping[str, str]


@dataclass(slots=True)
class Chain:
    """Everything that runs, for the pods of one namespace."""

    pods: Pods
    node: RealNode
    gpus: StandInGPUs
    agent: Agent | None
    scorer: Scorer

    def create(self, name: str, *containers: Object, **given: object) -> Object:
        """Create a pod of containers that write what they see; return it."""
        spec: Object = {"containers": list(containers), "terminationGracePeriodSeconds": 1}
        spec |= given.pop("spec", {})  # type: ignore[arg-type]
        return self.pods.create(name=name, spec=spec, **given)  # type: ignore[arg-type]

    def create_job(self, name: str, *containers: Object) -> None:
        """Create a Job of one pod."""
        spec = {"containers": list(containers), "restartPolicy": "Never"}
        spec["terminationGracePeriodSeconds"] = 1
        body = {"metadata": {"name": name}, "spec": {"template": {"spec": spec}}}
        self.pods.api.create(f"/apis/batch/v1/namespaces/{self.pods.namespace}/jobs", body)

    def running(self) -> dict[str, Object]:
        """Return the pods that run, by name."""
        pods = self.pods.all()
        return {name: pod for name, pod in pods.items() if pod["status"]["phase"] == "Running"}

    def wait_for_pod_of(self, job: str) -> str:
        """Wait until a pod of a Job runs; return its name."""

        def found() -> list[str]:
            return [name for name in self.running() if name.startswith(f"{job}-")]

        return wait_for(found, f"a pod of {job} runs", PATIENCE)[0]

    def cgroup_of(self, pod: str) -> str:
        """Return the path of the cgroup of a pod below the root of each hierarchy."""
        uid = self.pods.all()[pod]["metadata"]["uid"]
        for root in hierarchies():
            for path in (root / self.node.place.name).rglob(f"pod{uid}"):
                return str(path.relative_to(root))
        raise AssertionError(f"{pod} has no cgroup")

    def delete(self, *names: str) -> None:
        """Delete pods, and wait until the kubelet has ended them."""
        for name in names:
            # Controllers may have deleted it.
            with suppress(ApiError):
                self.pods.api.delete(f"{self.pods.path}/{name}")
        wait_until(lambda: not set(names) & self.pods.all().keys(), f"{names} are gone", PATIENCE)

    def seen(self, pod: str, container: str = "main", restart: int = 0) -> Seen:
        """Wait until a container has written what it sees; return that."""

        def report() -> list[str] | None:
            body = self.pods.api.get(f"{self.pods.path}/{pod}")
            lines = self.node.log(body, container, restart).splitlines()
            return lines if "reported" in lines else None

        try:
            lines = wait_for(report, f"{container} of {pod} has reported", PATIENCE)
        except NotReadyError as error:
            raise NotReadyError(f"{error}; {self._describe(pod)}") from None
        words = [line.partition(" ")[::2] for line in lines]
        variables = [rest.partition("=")[::2] for word, rest in words if word == "env"]
        return Seen(
            {int(rest) for word, rest in words if word == "device"},
            {rest for word, rest in words if word == "uuid"},
            {rest for word, rest in words if word == "driver"},
            dict(variables),
        )

    def _describe(self, pod: str) -> str:
        """Return why a pod does not run, for messages of tests."""
        found = self.pods.all()[pod]
        gates, status = found["spec"].get("schedulingGates"), found["status"]
        path = f"/api/v1/namespaces/{self.pods.namespace}/events"
        events = self.pods.api.get(path, fieldSelector=f"involvedObject.name={pod}")["items"]
        return f"{gates=} {status=} {[event['message'] for event in events]}"

    def has(self, pod: str, container: str = "main", restart: int = 0) -> set[int]:
        """Return the GPUs that a container sees, by device nodes and by UUIDs alike."""
        seen = self.seen(pod, container, restart)
        by_uuid = {self.gpus.uuids.index(uuid) for uuid in seen.uuids}
        assert {self.gpus.cards[i].minor for i in by_uuid} == seen.devices
        return by_uuid

    def recorded(self, pod: str) -> set[int]:
        """Return the GPUs in the record of a pod."""
        return {i for _, i in gpus(self.pods.all()[pod])}

    def events(self, reason: str, name: str) -> list[str]:
        """Return the messages of the Events about a pod of the namespace, or about the node."""
        selector = f"involvedObject.name={name},reason={reason}"
        found = self.pods.api.get("/api/v1/events", fieldSelector=selector)["items"]
        namespaces = {None, self.pods.namespace}
        return [
            event["message"]
            for event in found
            if event["involvedObject"].get("namespace") in namespaces
        ]

    def allocatable(self, resource: str) -> int:
        """Return how much of a resource the node offers."""
        node = self.pods.api.get(self.node.path)
        return int(node["status"]["allocatable"].get(resource, 0))

    def label(self, **labels: str | None) -> str:
        """Set labels of the node; return why the API server refuses, empty where it does not."""
        patch = {"metadata": {"labels": labels}}
        return refusal(lambda: self.pods.api.patch(self.node.path, patch))

    def switch(self, mode: str, **labels: str) -> None:
        """Set the mode of the node as soon as the API server accepts it."""
        wanted = {keys.NODE_MODE: mode, **labels}
        wait_until(lambda: self.label(**wanted) == "", f"the mode becomes {mode}", PATIENCE)

    @property
    def mode_in_use(self) -> str | None:
        """The mode that the agent has published as in use."""
        annotations = self.pods.api.get(self.node.path)["metadata"].get("annotations", {})
        return annotations.get(keys.MODE_IN_USE)

    def books(self) -> dict[str, dict[str, set[int]]]:
        """Return the GPUs of each running pod of the namespace, by each of the books."""
        pods, holders = self.pods.all(), self.agent.holders()
        records = {
            name: {i for _, i in gpus(pod)}
            for name, pod in pods.items()
            if pod["status"]["phase"] not in {"Succeeded", "Failed"}
        }
        return {
            "records": {name: held for name, held in records.items() if held},
            "CDI files": self._cdi_files(),
            "metrics of the agent": {
                name: holders[pod["metadata"]["uid"]]
                for name, pod in pods.items()
                if pod["metadata"]["uid"] in holders
            },
            "ledger of the scorer": self._ledger(),
        }

    def wait_until_books_agree(self) -> dict[str, set[int]]:
        """Return the GPUs of each running pod as soon as all books have the same.

        The kubelet's book has no GPUs, so that its containers are compared, but for init containers
        that have ended: these it forgets.
        """
        last: list[object] = []

        def agree() -> bool:
            books, listed, bound = self.books(), self.listed(), self.bound()
            last[:] = [books, listed, bound]
            first, *others = books.values()
            return all(book == first for book in others) and listed == bound

        try:
            wait_until(agree, "all books agree", PATIENCE)
        except NotReadyError as error:
            raise AssertionError(f"books differ: {last}") from error
        return self.books()["records"]

    def _cdi_files(self) -> dict[str, set[int]]:
        found: dict[str, set[int]] = {}
        for binding in self.bindings():
            found.setdefault(binding.pod, set()).update(gpu.i for gpu in binding.gpus)
        return found

    @property
    def cdi_files(self) -> list[Path]:
        """The CDI files of containers."""
        folder = self.gpus.root / "var/run/cdi"
        return [path for path in folder.glob("*") if is_ours(path.name)]

    def bindings(self) -> list[Binding]:
        """Return what the CDI files of the pods of the namespace say."""
        bindings = [read_binding(path.read_bytes()) for path in self.cdi_files]
        return [one for one in bindings if one.namespace == self.pods.namespace]

    def bound(self) -> set[tuple[str, str, frozenset[str]]]:
        """Return the containers with GPUs, by their CDI files."""
        ended = {
            (name, status["name"])
            for name, pod in self.pods.all().items()
            for status in pod["status"].get("initContainerStatuses", ())
            if "terminated" in status["state"]
        }
        return {
            (one.pod, one.container, one.device_ids)
            for one in self.bindings()
            if (one.pod, one.container) not in ended
        }

    def listed(self) -> set[tuple[str, str, frozenset[str]]]:
        """Return the containers with devices that are bound to GPUs, by PodResources."""
        socket = self.node.kubelet_folder / "pod-resources/kubelet.sock"
        listed = asyncio.run(PodResources(socket).list())
        binding = {keys.GPU_MEM, keys.GPU_WHOLE, keys.NVIDIA_GPU, keys.NVIDIA_GPU_SHARED}
        return {
            (one.pod, one.container, one.device_ids)
            for one in listed
            if one.resource in binding and one.namespace == self.pods.namespace
        }

    def in_kubelet(self) -> set[str]:
        """Return the pods of the namespace that the kubelet has, by PodResources."""
        socket = self.node.kubelet_folder / "pod-resources/kubelet.sock"
        listed = asyncio.run(PodResources(socket).pods())
        return {name for namespace, name in listed if namespace == self.pods.namespace}

    def _ledger(self) -> dict[str, set[int]]:
        """Return the pods with GPUs, by the scorer's inspection API."""
        [node] = self.scorer.look(f"/v1/nodes?name={self.node.name}")["nodes"]
        found: dict[str, set[int]] = {}
        for gpu in node["gpus"]:
            for holder in gpu["holders"]:
                namespace, name = holder["pod"].split("/")
                if namespace == self.pods.namespace:
                    found.setdefault(name, set()).add(gpu["i"])
        return found


def container(limits: Mapping[str, object] | None = None, name: str = "main", **given) -> Object:
    """Return a container that writes what it sees, and then waits, or runs `then`."""
    then = given.pop("then", "exec sleep infinity")
    resources = {"limits": {key: str(value) for key, value in (limits or {}).items()}}
    command = ["sh", "-c", f"{_REPORT}{then}"]
    return {"name": name, "image": IMAGE, "command": command, "resources": resources, **given}
