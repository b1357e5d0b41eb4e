"""`linkwise dashboard` as a process, and a cluster whose pods change while it runs."""

import asyncio
import json
import re
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from threading import Thread
from typing import Any

from linkwise.cluster import keys
from support.builders import node_object
from support.servers.fake_cluster import FakeCluster

LINKWISE = Path(sys.executable).with_name("linkwise")
GPUS = 8
_PODS = "/api/v1/namespaces/team/pods"
_POLICY = """
apiVersion: linkwise.dev/v1alpha1
kind: Policy
machines: [{nodeLabels: {ack.node.gpu.schedule: topology}, machine: dgx1-v100}]
"""


@contextmanager
def running_dashboard(*arguments: str | Path) -> Iterator[tuple[str, subprocess.Popen]]:
    """Run the command with these arguments; yield the page's address and the process."""
    command = [LINKWISE, "dashboard", "--no-browser", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        try:
            yield process.stdout.readline().split()[-1], process
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0


def resident(process: subprocess.Popen) -> float:
    """Return the memory of a process [MB]."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) * 1024 / 1e6


class ChangingCluster:
    """A fake API server in a thread, with nodes of 8 GPUs; use it in `with`.

    Each pod has one GPU that no other has.
    """

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever)
        self._api = FakeCluster()
        self._numbers = count()
        self._pods = deque()

    def __enter__(self) -> "ChangingCluster":
        self._thread.start()
        self._call(self._api.__aenter__())
        self._call(self._fill())
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._api.__aexit__())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def pods(self) -> int:
        """The number of pods."""
        return len(self._pods)

    @property
    def url(self) -> str:
        """The address of the API server."""
        return self._api.url

    def write_kubeconfig(self, folder: Path) -> Path:
        """Write a kubeconfig for it."""
        config = {
            "current-context": "here",
            "clusters": [{"name": "here", "cluster": {"server": self._api.url}}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "ann"}}],
            "users": [{"name": "ann", "user": {"token": "a-token"}}],
        }
        path = folder / "config"
        path.write_text(json.dumps(config))
        return path

    def put(self, path: str, body: Mapping[str, Any]) -> None:
        """Store an object at its path."""
        self._call(self._put(path, body))

    def change(self, created: int, deleted: int) -> None:
        """Create pods, and delete the oldest ones."""
        self._call(self._change(created, deleted))

    def _call(self, work):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    async def _put(self, path: str, body: Mapping[str, Any]) -> None:
        self._api.put(path, body)

    async def _fill(self) -> None:
        data = {keys.POLICY_KEY: _POLICY}
        path = f"/api/v1/namespaces/{keys.POLICY_NAMESPACE}/configmaps/{keys.POLICY_NAME}"
        self._api.put(path, {"metadata": {}, "data": data})
        for number in range(self._nodes):
            labels = {keys.NODE_MODE: "topology", keys.RACK: f"rack-{number // 32}"}
            amounts = {keys.GPU_WHOLE: str(GPUS), "cpu": "96", "memory": "768Gi"}
            node = node_object(f"gpu-{number}", labels, **amounts)
            self._api.put(f"/api/v1/nodes/gpu-{number}", node)

    async def _change(self, created: int, deleted: int) -> None:
        for _ in range(created):
            number = next(self._numbers)
            self._pods.append(f"{_PODS}/pod-{number}")
            self._api.put(self._pods[-1], self._pod(number))
        for _ in range(deleted):
            self._api.remove(self._pods.popleft())

    def _pod(self, number: int):
        node = f"gpu-{number % self._nodes}"
        record = {"v": 1, "node": node, "gpus": [{"i": number // self._nodes % GPUS}]}
        gang = {keys.GANG: f"gang-{number // 8}", keys.GANG_SIZE: "8"}
        resources = {"limits": {keys.GPU_WHOLE: "1"}}
        return {
            "metadata": {"annotations": {**gang, keys.ALLOCATION: json.dumps(record)}},
            "spec": {"nodeName": node, "containers": [{"name": "c", "resources": resources}]},
        }
