"""Register device plugins with the kubelet, again after each of its restarts.

At its start the kubelet removes all sockets in its folder and creates `kubelet.sock` again.
"""

import asyncio
import fcntl
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

from agent.kubelet.api.deviceplugin_pb2 import DevicePluginOptions, Empty, RegisterRequest
from agent.kubelet.call import KubeletError, call
from agent.plugin.devices import Offer
from agent.plugin.server import Binder, DevicePlugin
from linkwise.runtime.process.backoff import Backoff

_VERSION = "v1beta1"
_REGISTER = f"/{_VERSION}.Registration/Register"
_OPTIONS = f"/{_VERSION}.DevicePlugin/GetDevicePluginOptions"
_KUBELET_SOCKET = "kubelet.sock"
_PREFIX, _SUFFIX = "linkwise-", ".sock"

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Timings:
    """Intervals of registration."""

    poll: float = 1.0
    """Between two looks at the sockets [s]; a look costs two system calls a resource."""
    watch: float = 10.0
    """How long a kubelet that accepted a registration may take to list the slots [s]."""
    backoff: float = 1.0
    """The delay after the first failure [s]. A new kubelet ends each delay."""
    max_backoff: float = 30.0
    """The longest delay after a failure [s]."""


_DEFAULT_TIMINGS = Timings()


class DevicePlugins:
    """The device plugins of this node: one server and one registration for each resource."""

    def __init__(self, folder: Path, binder: Binder, timings: Timings = _DEFAULT_TIMINGS) -> None:
        """Offer nothing yet; `run` serves what `set` gives.

        Args:
            folder: Such as `/var/lib/kubelet/device-plugins`. It need not exist yet.
            binder: Gives containers their GPUs.
            timings: Intervals.
        """
        self._folder, self._binder, self._timings = folder, binder, timings
        self._kubelet = folder / _KUBELET_SOCKET
        self._plugins: dict[str, DevicePlugin] = {}
        self._changed = asyncio.Event()
        self._backoff = Backoff(timings.backoff, timings.max_backoff, on_ready=lambda: None)

    @property
    def unregistered(self) -> frozenset[str]:
        """Resources whose slots the kubelet does not watch."""
        return frozenset(
            resource for resource, plugin in self._plugins.items() if not plugin.watched.is_set()
        )

    async def answer(self) -> None:
        """Return when each server has answered a call, as the kubelet makes them.

        Raises:
            KubeletError: A server that the kubelet watches does not answer.
        """
        for resource in self._plugins.keys() - self.unregistered:
            await call(
                self._folder / _socket_name(resource), _OPTIONS, Empty(), DevicePluginOptions
            )

    def set(self, unhealthy: Mapping[Offer, frozenset[str]]) -> None:
        """Replace all resources. One that is not given any more is withdrawn.

        Args:
            unhealthy: The unhealthy slots of each resource.
        """
        plugins = {}
        for offer, slots in unhealthy.items():
            plugin = self._plugins.get(offer.resource) or DevicePlugin(offer, self._binder)
            plugin.update(offer, slots)
            plugins[offer.resource] = plugin
        self._plugins = plugins
        self._changed.set()

    async def run(self) -> None:
        """Serve until cancelled, and only while no other agent of this node does.

        Two agents would remove each other's sockets.
        """
        folder = await self._lock_folder()
        try:
            await self._serve_all()
        finally:
            os.close(folder)

    async def _lock_folder(self) -> int:
        """Return a descriptor of the folder, which is locked until it is closed."""
        waits = False
        while True:
            with suppress(FileNotFoundError):
                folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
                try:
                    fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    os.close(folder)
                    if not waits:
                        _log.warning("Another agent serves this node", folder=str(self._folder))
                    waits = True
                else:
                    return folder
            await asyncio.sleep(self._timings.poll)

    async def _serve_all(self) -> None:
        for socket in self._folder.glob(f"{_PREFIX}*{_SUFFIX}"):
            socket.unlink(missing_ok=True)
        tasks: dict[DevicePlugin, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as group:
            while True:
                self._changed.clear()
                # A resource that was withdrawn and offered again has another plugin.
                for plugin in tasks.keys() - set(self._plugins.values()):
                    task = tasks.pop(plugin)
                    task.cancel()
                    await asyncio.wait([task])
                for plugin in set(self._plugins.values()) - tasks.keys():
                    tasks[plugin] = group.create_task(self._keep_registered(plugin))
                await self._changed.wait()

    async def _keep_registered(self, plugin: DevicePlugin) -> None:
        resource = plugin.offer.resource
        while True:
            kubelet_id = _identity(self._kubelet)
            try:
                await self._serve_once(plugin)
                self._backoff.reset(resource)
            except (KubeletError, OSError) as error:
                delay = self._backoff.start(resource)
                _log.warning(
                    "Device plugin is not registered",
                    resource=resource,
                    err=str(error),
                    retry_after=delay,
                )
                # A kubelet that has started refuses pods until the plugin is registered.
                await self._until(
                    lambda: resource not in self._backoff or _identity(self._kubelet) != kubelet_id  # noqa: B023 - awaited here
                )

    async def _serve_once(self, plugin: DevicePlugin) -> None:
        """Serve and register a plugin; return when the kubelet needs another registration.

        Raises:
            KubeletError: The kubelet does not accept the plugin, or does not watch it.
            OSError: The socket cannot be created.
        """
        resource = plugin.offer.resource
        own = self._folder / _socket_name(resource)
        await self._until(lambda: _identity(self._kubelet) is not None)
        kubelet_id = _identity(self._kubelet)
        server = await plugin.start(own)
        try:
            own_id = _identity(own)
            await self._register(plugin, own.name)
            _log.info("Device plugin registered", resource=resource)
            await self._until(
                lambda: (
                    not plugin.watched.is_set()
                    or _identity(self._kubelet) != kubelet_id
                    or _identity(own) != own_id
                )
            )
            _log.info("Kubelet disconnected: the device plugin registers again", resource=resource)
        finally:
            await server.stop(grace=None)
            own.unlink(missing_ok=True)

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():  # noqa: ASYNC110 - no event announces a file
            await asyncio.sleep(self._timings.poll)

    async def _register(self, plugin: DevicePlugin, endpoint: str) -> None:
        request = RegisterRequest(
            version=_VERSION,
            endpoint=endpoint,
            resource_name=plugin.offer.resource,
            options=plugin.options,
        )
        await call(self._kubelet, _REGISTER, request, Empty)
        try:
            async with asyncio.timeout(self._timings.watch):
                await plugin.watched.wait()
        except TimeoutError as error:
            raise KubeletError(
                f"kubelet at {self._kubelet} does not list the slots of {plugin.offer.resource}"
            ) from error


def _socket_name(resource: str) -> str:
    return f"{_PREFIX}{resource.replace('/', '_')}{_SUFFIX}"


def _identity(socket: Path) -> tuple[int, int, int] | None:
    """Return the identity of a file among those of the same name; None: there is none."""
    try:
        status = socket.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_ctime_ns
