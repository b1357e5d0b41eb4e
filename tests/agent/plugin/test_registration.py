"""Registration of device plugins at a stand-in kubelet, and calls from it."""

import asyncio
import os
import stat
from contextlib import asynccontextmanager
from dataclasses import replace

import grpc
import pytest
from structlog.testing import capture_logs
from support.waiting import PATIENCE, until

from agent.binding.errors import BindError
from agent.binding.names import device_name, qualified_name
from agent.kubelet.call import KubeletError
from agent.plugin.devices import Offer
from agent.plugin.registration import DevicePlugins, Timings
from linkwise.cluster.keys import GPU_CORE, GPU_MEM, GPU_WHOLE

WHOLE = Offer(GPU_WHOLE, (1,) * 8)
MEMORY = Offer(GPU_MEM, (288,) * 16)
CORE = Offer(GPU_CORE, (100,) * 16, binds=False)
TIMINGS = Timings(poll=0.01, watch=PATIENCE, backoff=0.01, max_backoff=0.05)


class Bindings:
    """A binder that notes its calls; `refuses` is the error that it raises."""

    def __init__(self):
        self.calls, self.refuses = [], None

    async def bind(self, resource, device_ids):
        self.calls.append((resource, device_ids))
        if self.refuses:
            raise self.refuses


@asynccontextmanager
async def running(folder, *offers, binder=None, timings=TIMINGS):
    plugins = DevicePlugins(folder, binder or Bindings(), timings)
    plugins.set(dict.fromkeys(offers, frozenset()))
    task = asyncio.create_task(plugins.run())
    try:
        yield plugins
    finally:
        task.cancel()
        await asyncio.wait([task])


def healthy(kubelet, offer):
    devices = kubelet.plugins[offer.resource].devices
    return devices == dict.fromkeys(offer.slots, "Healthy")


async def test_each_resource_is_registered_with_its_options_and_slots(kubelet, folder):
    async with running(folder, MEMORY, CORE) as plugins:
        await until(lambda: healthy(kubelet, MEMORY) and healthy(kubelet, CORE))
        assert not plugins.unregistered
    for offer, pre_start in ((MEMORY, True), (CORE, False)):
        plugin = kubelet.plugins[offer.resource]
        assert plugin.request.version == "v1beta1"
        assert plugin.request.options.pre_start_required is pre_start
        assert plugin.options.pre_start_required is pre_start
        assert len(plugin.devices) == sum(offer.slots_per_gpu)


async def test_allocation_of_a_resource_that_binds_names_one_cdi_device_for_each_container(
    kubelet, folder
):
    async with running(folder, WHOLE):
        await until(lambda: healthy(kubelet, WHOLE))
        first, second = await kubelet.plugins[GPU_WHOLE].allocate(["slot-3", "slot-1"], ["slot-0"])
    assert [device.name for device in first.cdi_devices] == [
        qualified_name(device_name(GPU_WHOLE, ["slot-1", "slot-3"]))
    ]
    assert [device.name for device in second.cdi_devices] == [
        qualified_name(device_name(GPU_WHOLE, ["slot-0"]))
    ]
    assert [field.name for field, _ in first.ListFields()] == ["cdi_devices"]


async def test_allocation_of_a_resource_that_only_counts_adds_nothing(kubelet, folder):
    async with running(folder, CORE):
        await until(lambda: healthy(kubelet, CORE))
        (container,) = await kubelet.plugins[GPU_CORE].allocate(["slot-3"])
    assert container.SerializeToString() == b""


async def test_container_is_bound_before_its_start_with_all_its_slots(kubelet, folder):
    binder = Bindings()
    async with running(folder, MEMORY, binder=binder):
        await until(lambda: healthy(kubelet, MEMORY))
        await kubelet.plugins[GPU_MEM].pre_start(MEMORY.slots)
    assert binder.calls == [(GPU_MEM, frozenset(MEMORY.slots))]


@pytest.mark.parametrize(
    ("message", "details"),
    [("GPU 3 is gone: delete the pod", "GPU 3 is gone: delete the pod"), ("é" * 9000, "é" * 1000)],
    ids=["reason", "long-reason"],
)
async def test_container_that_cannot_be_bound_is_refused_with_the_reason(
    kubelet, folder, message, details
):
    binder = Bindings()
    binder.refuses = BindError(message)
    async with running(folder, WHOLE, binder=binder):
        await until(lambda: healthy(kubelet, WHOLE))
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await kubelet.plugins[GPU_WHOLE].pre_start(["slot-0"])
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert refused.value.details() == details


async def test_unforeseen_error_of_the_binder_refuses_the_container_and_no_later_one(
    kubelet, folder
):
    binder = Bindings()
    binder.refuses = RuntimeError("a fault")
    async with running(folder, WHOLE, binder=binder):
        await until(lambda: healthy(kubelet, WHOLE))
        with pytest.raises(grpc.aio.AioRpcError):
            await kubelet.plugins[GPU_WHOLE].pre_start(["slot-0"])
        binder.refuses = None
        await kubelet.plugins[GPU_WHOLE].pre_start(["slot-0"])


async def test_each_change_of_health_is_sent_once(kubelet, folder):
    async with running(folder, WHOLE) as plugins:
        await until(lambda: healthy(kubelet, WHOLE))
        plugin = kubelet.plugins[GPU_WHOLE]
        for slots in ({"slot-3"}, {"slot-3"}, set(), {"slot-7"}):
            plugins.set({WHOLE: frozenset(slots)})
            await until(lambda slots=slots: plugin.unhealthy() == slots)
    assert plugin.lists == 4
    assert len(kubelet.registrations) == 1


async def test_new_number_of_slots_is_sent_without_another_registration(kubelet, folder):
    async with running(folder, WHOLE) as plugins:
        await until(lambda: healthy(kubelet, WHOLE))
        fewer = Offer(GPU_WHOLE, (1,) * 7)
        plugins.set({fewer: frozenset()})
        await until(lambda: healthy(kubelet, fewer))
    assert len(kubelet.registrations) == 1


async def test_other_resources_replace_those_of_the_mode_before(kubelet, folder):
    async with running(folder, WHOLE) as plugins:
        await until(lambda: healthy(kubelet, WHOLE))
        plugins.set({MEMORY: frozenset(), CORE: frozenset()})
        await until(lambda: healthy(kubelet, MEMORY) and healthy(kubelet, CORE))
        plugins.set({WHOLE: frozenset()})
        await until(lambda: not plugins.unregistered and len(sockets(folder)) == 1)
        assert len(kubelet.registrations) == 4
    assert sockets(folder) == []


async def test_of_two_agents_of_a_node_the_second_waits_for_the_end_of_the_first(kubelet, folder):
    with capture_logs() as logs:
        async with running(folder, WHOLE) as first:
            await until(lambda: healthy(kubelet, WHOLE))
            async with running(folder, WHOLE) as second:
                await until(lambda: "Another agent serves this node" in str(logs))
                assert (first.unregistered, second.unregistered) == (set(), {GPU_WHOLE})
                assert len(kubelet.registrations) == 1
        async with running(folder, WHOLE) as third:
            await until(lambda: not third.unregistered)


async def test_a_resource_that_is_withdrawn_and_offered_again_has_its_health(kubelet, folder):
    async with running(folder, WHOLE) as plugins:
        await until(lambda: healthy(kubelet, WHOLE))
        plugins.set({})
        plugins.set({WHOLE: frozenset({"slot-3"})})
        await until(lambda: kubelet.plugins[GPU_WHOLE].unhealthy() == {"slot-3"})


async def test_plugins_register_again_after_a_restart_of_the_kubelet(kubelet, folder):
    async with running(folder, WHOLE, CORE) as plugins:
        await until(lambda: healthy(kubelet, WHOLE) and healthy(kubelet, CORE))
        for _ in range(3):
            await kubelet.stop()
            await until(lambda: plugins.unregistered == {GPU_WHOLE, GPU_CORE})
            await kubelet.start()
            await until(lambda: healthy(kubelet, WHOLE) and healthy(kubelet, CORE))


async def test_plugin_whose_socket_is_removed_serves_again(kubelet, folder):
    async with running(folder, WHOLE):
        await until(lambda: healthy(kubelet, WHOLE))
        before = kubelet.plugins[GPU_WHOLE]
        (socket,) = sockets(folder)
        (folder / socket).unlink()
        await until(lambda: kubelet.plugins[GPU_WHOLE] is not before and healthy(kubelet, WHOLE))
        await kubelet.plugins[GPU_WHOLE].pre_start(["slot-0"])


async def test_plugin_whose_stream_breaks_registers_again_and_no_other_does(kubelet, folder):
    async with running(folder, WHOLE, CORE):
        await until(lambda: healthy(kubelet, WHOLE) and healthy(kubelet, CORE))
        before = dict(kubelet.plugins)
        await before[GPU_WHOLE].close()
        await until(lambda: kubelet.plugins[GPU_WHOLE] is not before[GPU_WHOLE])
        await until(lambda: healthy(kubelet, WHOLE))
    assert kubelet.plugins[GPU_CORE] is before[GPU_CORE]


async def test_refused_registration_is_repeated_and_logged(kubelet, folder):
    kubelet.refused = "resource name is taken"
    # A second failure counts as one in a row only within this time after the first.
    timings = replace(TIMINGS, max_backoff=PATIENCE)
    with capture_logs() as logs:
        async with running(folder, WHOLE, timings=timings):
            await until(lambda: len(logs) >= 2)
            kubelet.refused = None
            await until(lambda: healthy(kubelet, WHOLE))
    assert logs[0]["event"] == "Device plugin is not registered"
    assert "UNKNOWN: resource name is taken" in logs[0]["err"]
    assert [line["retry_after"] for line in logs[:2]] == [0.01, 0.02]


async def test_kubelet_that_does_not_list_the_slots_is_asked_again(kubelet, folder):
    kubelet.watches = False
    with capture_logs() as logs:
        async with running(folder, WHOLE, timings=replace(TIMINGS, watch=0.2)):
            await until(lambda: logs)
            kubelet.watches = True
            await until(lambda: healthy(kubelet, WHOLE))
    assert f"does not list the slots of {GPU_WHOLE}" in logs[0]["err"]


async def test_kubelet_that_has_not_started_yet_is_waited_for(folder, kubelet):
    await kubelet.stop()
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    async with running(folder, WHOLE) as plugins:
        assert plugins.unregistered == {GPU_WHOLE}
        await kubelet.start()
        await until(lambda: healthy(kubelet, WHOLE))


async def test_start_of_a_kubelet_ends_the_backoff_after_a_killed_one(kubelet, folder):
    await kubelet.stop()
    os.mknod(folder / "kubelet.sock", stat.S_IFSOCK | 0o600)
    timings = Timings(poll=0.01, backoff=3600, max_backoff=3600)
    with capture_logs() as logs:
        async with running(folder, WHOLE, timings=timings):
            await until(lambda: logs)
            await kubelet.start()
            await until(lambda: healthy(kubelet, WHOLE))
    assert "UNAVAILABLE" in logs[0]["err"]


async def test_sockets_of_a_killed_agent_are_removed_and_those_of_other_plugins_stay(
    kubelet, folder
):
    for name in ("linkwise-aliyun.com_gpu-mem.sock", "linkwise-aliyun.com_gpu.sock", "nvidia.sock"):
        os.mknod(folder / name, stat.S_IFSOCK | 0o600)
    async with running(folder, WHOLE):
        await until(lambda: healthy(kubelet, WHOLE))
        assert sockets(folder) == ["linkwise-aliyun.com_gpu.sock"]
        assert (folder / "nvidia.sock").exists()


async def test_path_that_is_too_long_for_a_socket_is_logged(tmp_path):
    long = tmp_path / ("x" * 100)
    long.mkdir()
    (long / "kubelet.sock").touch()
    with capture_logs() as logs:
        async with running(long, WHOLE):
            await until(lambda: logs)
    assert str(long) in logs[0]["err"]


def sockets(folder):
    return sorted(path.name for path in folder.glob("linkwise-*"))


async def test_plugins_that_the_kubelet_watches_are_called(kubelet, folder):
    async with running(folder, MEMORY, CORE, timings=replace(TIMINGS, poll=3600)) as plugins:
        await until(lambda: healthy(kubelet, MEMORY) and healthy(kubelet, CORE))
        await plugins.answer()

        next(folder.glob("linkwise-*gpu-core*.sock")).unlink()
        with pytest.raises(KubeletError, match="UNAVAILABLE"):
            await plugins.answer()
