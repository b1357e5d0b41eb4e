"""A control plane of one machine: etcd, API server, controllers, scheduler, and kwok for nodes."""

import shutil
import signal
import ssl
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

from controlplane import credentials, programs
from controlplane.api import Api, ApiError
from controlplane.binaries import Binaries
from controlplane.process import Process, Processes, answers, free_ports, wait_until
from controlplane.programs import Site

_NAMESPACES = "/api/v1/namespaces"
_LISTENERS = (
    "etcd",
    "etcd-peer",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kwok",
)


class ControlPlane:
    """The running programs and their addresses."""

    def __init__(
        self,
        folder: Path,
        binaries: Binaries,
        processes: Processes,
        flags: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> None:
        ports = dict(zip(_LISTENERS, free_ports(len(_LISTENERS)), strict=True))
        self.site = Site(folder, binaries, ports, flags)
        self.processes = processes
        self.manifests: Path | None = None
        """The folder of Linkwise's manifests that are installed."""
        self.tokens = credentials.write_credentials(folder)
        for user, token in self.tokens.items():
            self.site.kubeconfig(user).write_text(self._kubeconfig(token))

    @property
    def server(self) -> str:
        """The API server's address."""
        return self.site.server

    @property
    def ca_file(self) -> Path:
        """What verifies the API server."""
        return self.site.ca_file

    @property
    def kubeconfig(self) -> Path:
        """An administrator's."""
        return self.site.kubeconfig(credentials.ADMIN)

    @cached_property
    def api(self) -> Api:
        """The API server as an administrator sees it; once it runs."""
        return self.api_as(self.tokens[credentials.ADMIN])

    def api_as(self, token: str) -> Api:
        """Return the API server as the owner of a token sees it."""
        return Api(self.server, token, self.trust)

    @property
    def trust(self) -> ssl.SSLContext:
        """What verifies API servers."""
        return ssl.create_default_context(cafile=str(self.ca_file))

    def token(self, namespace: str, name: str, seconds: int = 3600) -> str:
        """Return a fresh token of a ServiceAccount that exists; for 600 s at least."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        answer = self.api.create(path, {"spec": {"expirationSeconds": seconds}})
        return str(answer["status"]["token"])

    def kubectl(
        self, *arguments: str, stdin: str | None = None, token: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as an administrator, or as the owner of a token; read its `returncode`."""
        config = self.kubeconfig
        if token:
            config = self.site.folder / "kubectl.kubeconfig"
            config.write_text(self._kubeconfig(token))
        argv = (
            self.site.binaries["kubectl"],
            f"--kubeconfig={config}",
            f"--cache-dir={self.site.folder / 'kubectl-cache'}",
            *arguments,
        )
        return subprocess.run(
            argv, input=stdin, capture_output=True, text=True, check=False, timeout=60
        )

    def start(self) -> None:
        """Start everything, and wait until all of it is ready."""
        etcd = programs.etcd(self.site)
        self._start(etcd, self._healthy(etcd, "/readyz"))
        self._start(programs.api_server(self.site), self._api_server_ready)
        self._start_others()

    def _start_others(self) -> None:
        """Start the clients of the API server, and wait until they are ready."""
        others = {
            programs.controllers(self.site): "/healthz",
            programs.scheduler(self.site): "/readyz",
            programs.kwok(self.site): "/healthz",
        }
        for process in others:
            self.processes.start(process)
        for process, path in others.items():
            process.wait_ready(self._healthy(process, path))
        self._wait_for_controllers()

    def process(self, name: str) -> Process:
        """Return one of the running programs."""
        return next(process for process in self.processes.running if process.name == name)

    def restart_api_server(self, *flags: str) -> None:
        """End the API server, start it again on its port, and wait until all work with it again.

        Who works with it is started again, too: else they would wait longer after each attempt to
        reach it, up to a minute, and what a test sees would be their patience.

        Args:
            flags: Beside the usual ones, until it is started again.
        """
        for name in ("kwok", "kube-scheduler", "kube-controller-manager", "kube-apiserver"):
            self.processes.stop(self.process(name))
        server = programs.api_server(self.site)
        server = replace(server, argv=(*server.argv, *flags))
        self._start(server, self._api_server_ready)
        self._start_others()

    @contextmanager
    def another_api_server(self) -> Iterator[int]:
        """Run one more API server on the same etcd, and give its port."""
        (port,) = free_ports(1)
        process = programs.another_api_server(self.site, port)
        api = Api(process.urls[0], self.api.token, self.trust)
        self._start(process, lambda: api.text("/readyz") == "ok")
        try:
            yield port
        finally:
            self.processes.stop(process)

    @contextmanager
    def paused(self, name: str = "kube-apiserver") -> Iterator[None]:
        """Pause a program: its connections stay open and silent."""
        process = self.process(name)
        process.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.signal(signal.SIGCONT)

    @contextmanager
    def without(self, name: str) -> Iterator[None]:
        """End a client of the API server; start it again at the end, and wait until it is ready."""
        process = self.process(name)
        self.processes.stop(process)
        try:
            yield
        finally:
            self._start(process, self._healthy(process, "/healthz"))

    def _kubeconfig(self, token: str) -> str:
        return credentials.kubeconfig(self.server, self.ca_file, token)

    def _start(self, process: Process, ready: Callable[[], bool]) -> None:
        self.processes.start(process)
        process.wait_ready(ready)

    def _healthy(self, process: Process, path: str) -> Callable[[], bool]:
        return lambda: answers(process.urls[0] + path)

    def _api_server_ready(self) -> bool:
        try:
            return self.api.text("/readyz") == "ok"
        except (ApiError, OSError):
            return False

    def _wait_for_controllers(self) -> None:
        """Return when a new namespace gets its ServiceAccount, and the first one has it."""
        probe = self.api.create(_NAMESPACES, {"metadata": {"generateName": "probe-"}})
        for home in ("default", probe["metadata"]["name"]):
            accounts = f"{_NAMESPACES}/{home}/serviceaccounts"
            wait_until(lambda path=accounts: bool(self.api.get(path)["items"]), "controllers work")
        self.api.delete(f"{_NAMESPACES}/{probe['metadata']['name']}")


@contextmanager
def control_plane(
    folder: Path, binaries: Binaries, **flags: Sequence[str]
) -> Iterator[ControlPlane]:
    """Run a control plane whose files are in a folder; its logs stay there.

    Args:
        folder: Empty.
        binaries: What runs.
        flags: More than the usual ones, by program; `_` stands for `-`.

    Raises:
        NotReadyError: Something did not become ready.
    """
    try:
        with Processes() as processes:
            more = {name.replace("_", "-"): given for name, given in flags.items()}
            plane = ControlPlane(folder, binaries, processes, more)
            plane.start()
            yield plane
    finally:
        shutil.rmtree(folder / "etcd", ignore_errors=True)
