"""A stand-in for the kubelet: registers device plugins, watches and calls them, lists devices."""

import asyncio
from contextlib import suppress

import grpc

from agent.kubelet.api import deviceplugin_pb2 as plugin_api
from agent.kubelet.api import podresources_pb2 as resources_api

_SERVICE = "/v1beta1.DevicePlugin"


class Plugin:
    """One registered device plugin, as the kubelet sees it."""

    def __init__(self, socket, request):
        self.request = request
        self.options = None
        self.devices = {}
        """Health by id."""
        self.lists = 0
        """How many lists came."""
        options = [("grpc.use_local_subchannel_pool", 1)]
        self._channel = grpc.aio.insecure_channel(f"unix:{socket}", options=options)
        self._task = None

    async def connect(self):
        self.options = await self.call("GetDevicePluginOptions", plugin_api.DevicePluginOptions)
        self._task = asyncio.create_task(self._watch())

    async def call(self, method, response, request=None):
        invoke = self._channel.unary_unary(
            f"{_SERVICE}/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=response.FromString,
        )
        return await invoke(request or plugin_api.Empty(), timeout=30)

    async def allocate(self, *containers):
        requests = [plugin_api.ContainerAllocateRequest(devices_ids=ids) for ids in containers]
        request = plugin_api.AllocateRequest(container_requests=requests)
        response = await self.call("Allocate", plugin_api.AllocateResponse, request)
        return response.container_responses

    async def pre_start(self, ids):
        request = plugin_api.PreStartContainerRequest(devices_ids=ids)
        return await self.call("PreStartContainer", plugin_api.PreStartContainerResponse, request)

    def unhealthy(self):
        return {slot for slot, health in self.devices.items() if health == "Unhealthy"}

    async def close(self):
        if self._task:
            self._task.cancel()
        await self._channel.close()

    async def _watch(self):
        watch = self._channel.unary_stream(
            f"{_SERVICE}/ListAndWatch",
            request_serializer=plugin_api.Empty.SerializeToString,
            response_deserializer=plugin_api.ListAndWatchResponse.FromString,
        )
        with suppress(grpc.aio.AioRpcError):
            async for message in watch(plugin_api.Empty()):
                self.devices = {device.ID: device.health for device in message.devices}
                self.lists += 1


class Kubelet:
    """Serves Registration and PodResources. A start removes all sockets, as the kubelet's does."""

    def __init__(self, folder):
        self.folder = folder
        self.pod_resources = folder / "pod-resources.sock"
        self.plugins = {}
        """By resource: the last registered plugin."""
        self.registrations = []
        self.refused = None
        """The reason that every registration is answered with."""
        self.watches = True
        """Registered plugins are connected to."""
        self.listed = resources_api.ListPodResourcesResponse()
        self.lists = 0
        """How often the devices were asked for."""
        self._server = None

    async def start(self):
        self.folder.mkdir(exist_ok=True)
        for path in self.folder.iterdir():
            path.unlink(missing_ok=True)
        self._server = grpc.aio.server()
        self._server.add_generic_rpc_handlers(
            (
                _handler(
                    "v1beta1.Registration",
                    "Register",
                    self._register,
                    plugin_api.RegisterRequest,
                ),
                _handler(
                    "v1.PodResourcesLister",
                    "List",
                    self._list,
                    resources_api.ListPodResourcesRequest,
                ),
            )
        )
        for path in (self.folder / "kubelet.sock", self.pod_resources):
            self._server.add_insecure_port(f"unix:{path}")
        await self._server.start()

    async def stop(self):
        for plugin in self.plugins.values():
            await plugin.close()
        self.plugins = {}
        if self._server:
            await self._server.stop(None)
            self._server = None

    async def _register(self, request, context):
        if self.refused:
            await context.abort(grpc.StatusCode.UNKNOWN, self.refused)
        self.registrations.append(request)
        if self.watches:
            plugin = Plugin(self.folder / request.endpoint, request)
            await plugin.connect()
            if before := self.plugins.get(request.resource_name):
                await before.close()
            self.plugins[request.resource_name] = plugin
        return plugin_api.Empty()

    async def _list(self, _request, _context):
        self.lists += 1
        return self.listed


def _handler(service, method, answer, request):
    handler = grpc.unary_unary_rpc_method_handler(
        answer, request.FromString, lambda message: message.SerializeToString()
    )
    return grpc.method_handlers_generic_handler(service, {method: handler})
