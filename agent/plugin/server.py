"""The gRPC service of one resource: a device plugin of the kubelet (v1beta1)."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import grpc
import structlog

from agent.binding.errors import BindError
from agent.binding.names import device_name, qualified_name
from agent.kubelet.api.deviceplugin_pb2 import (
    AllocateRequest,
    AllocateResponse,
    CDIDevice,
    ContainerAllocateResponse,
    Device,
    DevicePluginOptions,
    Empty,
    ListAndWatchResponse,
    PreStartContainerRequest,
    PreStartContainerResponse,
)
from agent.plugin.devices import Offer

_SERVICE = "v1beta1.DevicePlugin"
_HEALTHY, _UNHEALTHY = "Healthy", "Unhealthy"
_MAX_REASON = 1000
"""Longest message of an error [characters]; a gRPC trailer holds 8 KiB, percent-encoded."""

_log = structlog.get_logger()


class Binder(Protocol):
    """Gives a container the GPUs of its record."""

    async def bind(self, resource: str, device_ids: frozenset[str]) -> None:
        """Bind the container that has these devices; BindError: it must not start."""


class DevicePlugin:
    """Offers the slots of one resource to the kubelet."""

    def __init__(self, offer: Offer, binder: Binder) -> None:
        """Create a plugin that does not serve yet; all its slots are healthy.

        Args:
            offer: The resource.
            binder: Called before a container of a resource that binds is made.
        """
        self.offer = offer
        self._unhealthy: frozenset[str] = frozenset()
        self._binder = binder
        self._changed = asyncio.Event()
        self._streams: set[object] = set()
        self.watched = asyncio.Event()
        """Set while the kubelet watches the list of slots."""

    @property
    def options(self) -> DevicePluginOptions:
        """What the kubelet must call."""
        return DevicePluginOptions(pre_start_required=self.offer.binds)

    def update(self, offer: Offer, unhealthy: frozenset[str]) -> None:
        """Replace the slots and their health; the kubelet is sent the new list if it differs."""
        if (offer, unhealthy) == (self.offer, self._unhealthy):
            return
        self.offer, self._unhealthy = offer, unhealthy
        self._changed.set()
        self._changed = asyncio.Event()

    async def start(self, socket: Path) -> Any:  # noqa: ANN401 - grpc has no types
        """Serve on a Unix socket, and return the gRPC server.

        Raises:
            OSError: The socket cannot be created.
        """
        # Streams of the server before may end later than it.
        self._streams.clear()
        self.watched.clear()
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((self._handlers(),))
        try:
            server.add_insecure_port(f"unix:{socket}")
        except RuntimeError as error:
            raise OSError(f"{socket}: {error}") from error
        await server.start()
        return server

    def _handlers(self) -> Any:  # noqa: ANN401 - grpc has no types
        return grpc.method_handlers_generic_handler(
            _SERVICE,
            {
                "GetDevicePluginOptions": grpc.unary_unary_rpc_method_handler(
                    self._get_options, Empty.FromString, DevicePluginOptions.SerializeToString
                ),
                "ListAndWatch": grpc.unary_stream_rpc_method_handler(
                    self._list_and_watch, Empty.FromString, ListAndWatchResponse.SerializeToString
                ),
                "Allocate": grpc.unary_unary_rpc_method_handler(
                    self._allocate, AllocateRequest.FromString, AllocateResponse.SerializeToString
                ),
                "PreStartContainer": grpc.unary_unary_rpc_method_handler(
                    self._pre_start,
                    PreStartContainerRequest.FromString,
                    PreStartContainerResponse.SerializeToString,
                ),
            },
        )

    async def _get_options(self, _request: Empty, _context: object) -> DevicePluginOptions:
        return self.options

    async def _list_and_watch(
        self,
        _request: Empty,
        context: Any,  # noqa: ANN401 - grpc has no types
    ) -> None:
        stream = object()
        self._streams.add(stream)
        self.watched.set()
        try:
            while True:
                changed = self._changed
                await context.write(self._list())
                await changed.wait()
        finally:
            self._streams.discard(stream)
            if not self._streams:
                self.watched.clear()

    def _list(self) -> ListAndWatchResponse:
        return ListAndWatchResponse(
            devices=[
                Device(ID=slot, health=_UNHEALTHY if slot in self._unhealthy else _HEALTHY)
                for slot in self.offer.slots
            ]
        )

    async def _allocate(self, request: AllocateRequest, _context: object) -> AllocateResponse:
        return AllocateResponse(
            container_responses=[
                self._container(container.devices_ids) for container in request.container_requests
            ]
        )

    def _container(self, device_ids: Iterable[str]) -> ContainerAllocateResponse:
        """Return the CDI device of a set of slots; its file is written before the start."""
        if not self.offer.binds:
            return ContainerAllocateResponse()
        name = qualified_name(device_name(self.offer.resource, device_ids))
        return ContainerAllocateResponse(cdi_devices=[CDIDevice(name=name)])

    async def _pre_start(
        self,
        request: PreStartContainerRequest,
        context: Any,  # noqa: ANN401 - grpc has no types
    ) -> PreStartContainerResponse:
        try:
            await self._binder.bind(self.offer.resource, frozenset(request.devices_ids))
        except BindError as error:
            reason = str(error)[:_MAX_REASON]
            _log.warning("Container refused", resource=self.offer.resource, reason=reason)
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, reason)
        return PreStartContainerResponse()
