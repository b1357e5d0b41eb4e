"""gpushare's scheduler, as its wire protocol describes it: a kube-scheduler and an HTTP extender.

Its program cannot be built from Go modules. This stand-in has its routes, its choice of the card
and the order of its writes, from gpushare-scheduler-extender `pkg/{routes,scheduler,cache,utils}`
at c0b6141. It keeps no cache: it counts the pods of a node when it is called.
"""

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread

from controlplane import credentials
from controlplane.api import Api, ApiError, Object
from controlplane.plane import ControlPlane
from controlplane.sidecar import start_scheduler

from linkwise.cluster import keys

SCHEDULER = "gpushare"
_HOME, _ACCOUNT = "kube-system", "gpushare-schd-extender"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_RULES = [
    {"apiGroups": [""], "resources": ["nodes", "configmaps"], "verbs": ["get", "list", "watch"]},
    {
        "apiGroups": [""],
        "resources": ["pods"],
        "verbs": ["update", "patch", "get", "list", "watch"],
    },
    {"apiGroups": [""], "resources": ["bindings", "pods/binding"], "verbs": ["create"]},
]


@contextmanager
def run_gpushare(plane: ControlPlane, folder: Path) -> Iterator[list[str]]:
    """Run the scheduler `gpushare` with the extender, which has the rights that gpushare ships.

    Returns the refusals of the API server that the extender has received.

    Raises:
        NotReadyError: The scheduler did not start in time.
    """
    _grant(plane)
    extender = _Extender(plane.api_as(plane.token(_HOME, _ACCOUNT)))
    with ThreadingHTTPServer(("127.0.0.1", 0), _handler(extender)) as server:
        Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/gpushare-scheduler"
        scheduler = start_scheduler(plane, folder, _configuration(plane, url))
        try:
            yield extender.refusals
        finally:
            plane.processes.stop(scheduler)
            server.shutdown()
            _revoke(plane)


class _Extender:
    def __init__(self, api: Api) -> None:
        self._api = api
        self._lock = Lock()
        self.refusals: list[str] = []

    def filter(self, arguments: Object) -> Object:
        """Pass the nodes that have a card with as much free memory as the pod requests."""
        request = _memory(arguments["Pod"])
        failed, passed = {}, []
        for node in arguments["NodeNames"]:
            if any(free >= request for free in self._free(node).values()):
                passed.append(node)
            else:
                failed[node] = "Insufficient GPU Memory in one device"
        return {"NodeNames": passed, "FailedNodes": failed, "Error": ""}

    def bind(self, arguments: Object) -> Object:
        """Write the fullest card with enough memory on the pod, then bind it."""
        namespace, name, node = (arguments[key] for key in ("PodNamespace", "PodName", "Node"))
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        with self._lock:
            request = _memory(self._api.get(path))
            fitting = {i: free for i, free in self._free(node).items() if free >= request}
            if not fitting:
                return {"Error": f"no GPU of {node} has {request} of memory"}
            card = min(fitting, key=lambda i: (fitting[i], i))
            annotations = {
                keys.MEM_IDX: str(card),
                keys.MEM_POD: str(request),
                keys.MEM_DEV: str(self._cards(node)[card]),
                keys.MEM_ASSIGNED: "false",
                keys.MEM_ASSUME_TIME: str(time.time_ns()),
            }
            binding = {
                "metadata": {"name": name, "uid": arguments["PodUID"]},
                "target": {"kind": "Node", "name": node},
            }
            try:
                self._api.patch(path, {"metadata": {"annotations": annotations}}, "strategic")
                self._api.create(f"{path}/binding", binding)
            except ApiError as error:
                self.refusals.append(error.message)
                return {"Error": error.message}
        return {"Error": ""}

    def _free(self, node: str) -> dict[int, int]:
        """Return the free memory of each card, by the annotations of the pods of the node."""
        used: Counter[int] = Counter()
        pods = self._api.get("/api/v1/pods", fieldSelector=f"spec.nodeName={node}")["items"]
        for pod in pods:
            index = pod["metadata"].get("annotations", {}).get(keys.MEM_IDX)
            if index is not None and pod["status"].get("phase") not in {"Succeeded", "Failed"}:
                used[int(index)] += _memory(pod)
        return {card: total - used[card] for card, total in self._cards(node).items()}

    def _cards(self, node: str) -> dict[int, int]:
        offered: Mapping[str, str] = self._api.get(f"/api/v1/nodes/{node}")["status"]["allocatable"]
        count = int(offered.get(keys.GPU_COUNT, "0"))
        return {card: int(offered[keys.GPU_MEM]) // count for card in range(count)}


def _memory(pod: Object) -> int:
    limits = (one["resources"].get("limits", {}) for one in pod["spec"]["containers"])
    return sum(int(one.get(keys.GPU_MEM, "0")) for one in limits)


def _handler(extender: _Extender) -> type[BaseHTTPRequestHandler]:
    verbs = {
        "/gpushare-scheduler/filter": extender.filter,
        "/gpushare-scheduler/bind": extender.bind,
    }

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            arguments = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer = verbs[self.path](arguments)
            body = json.dumps(answer).encode()
            is_failed_bind = self.path.endswith("bind") and answer["Error"]
            self.send_response(500 if is_failed_bind else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing on the terminal."""

    return Handler


def _configuration(plane: ControlPlane, url: str) -> Object:
    user = plane.site.kubeconfig(credentials.SCHEDULER)
    extender = {
        "urlPrefix": url,
        "filterVerb": "filter",
        "bindVerb": "bind",
        "nodeCacheCapable": True,
        "ignorable": False,
        "managedResources": [{"name": keys.GPU_MEM, "ignoredByScheduler": False}],
    }
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(user)},
        "leaderElection": {"leaderElect": False},
        "profiles": [{"schedulerName": SCHEDULER}],
        "extenders": [extender],
    }


def _grant(plane: ControlPlane) -> None:
    accounts = f"/api/v1/namespaces/{_HOME}/serviceaccounts"
    plane.api.create(accounts, {"metadata": {"name": _ACCOUNT}})
    role = {"metadata": {"name": _ACCOUNT}, "rules": _RULES}
    plane.api.create(f"{_RBAC}/clusterroles", role)
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": _ACCOUNT}
    subject = {"kind": "ServiceAccount", "name": _ACCOUNT, "namespace": _HOME}
    body = {"metadata": {"name": _ACCOUNT}, "roleRef": reference, "subjects": [subject]}
    plane.api.create(f"{_RBAC}/clusterrolebindings", body)


def _revoke(plane: ControlPlane) -> None:
    for kind in ("clusterrolebindings", "clusterroles"):
        plane.api.delete(f"{_RBAC}/{kind}/{_ACCOUNT}")
    plane.api.delete(f"/api/v1/namespaces/{_HOME}/serviceaccounts/{_ACCOUNT}")
