"""Unforeseen exceptions in the work on one unit do not stop the leader or other work."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest
import pytest_asyncio
from prometheus_client import CollectorRegistry, generate_latest
from structlog.testing import capture_logs
from support.servers.leader_harness import SHORT, Clock, Cluster
from support.waiting import until

from linkwise.cluster import keys
from linkwise.planning.gang import unit
from linkwise.planning.placement.state import node_columns
from linkwise.runtime.kube.client import Kube
from scorer.cache.workloads import workload_informer
from scorer.extender.wire import Binding
from scorer.fence import LeadershipLost
from scorer.leader import Leader
from scorer.metrics import Metrics, Stage

PODS = "/api/v1/namespaces/team/pods"
GANGS = "/apis/linkwise.dev/v1alpha1/namespaces/team/gangs"


class Broken(Kube):
    """A client that raises an unforeseen exception before it sends a request."""

    def __init__(self, server):
        super().__init__(server)
        # Copies of the client, as one with a limit of its calls, break as it does.
        self._fault = SimpleNamespace(breaks=breaks("/none"), error=RuntimeError("unforeseen"))

    @property
    def breaks(self):
        return self._fault.breaks

    @breaks.setter
    def breaks(self, breaks):
        self._fault.breaks = breaks

    @property
    def error(self):
        return self._fault.error

    @error.setter
    def error(self, error):
        self._fault.error = error

    async def _call(self, method, path, **options):
        if self.breaks(method, path):
            raise self.error
        return await super()._call(method, path, **options)


class Leading:
    """A leader, and its metrics."""

    def __init__(self, cluster, clock):
        self.registry, self.clock = CollectorRegistry(), clock
        self.kube = Broken(cluster.url)
        self.leader = Leader(
            self.kube,
            self.kube,
            Metrics(self.registry),
            clock=clock,
            instance="scorer-0",
            wait=0,
            timings=replace(SHORT, fault_retry=0.1),
        )

    @property
    def context(self):
        return self.leader.context

    def failed(self, stage):
        """Return how often a stage failed."""
        return self.registry.get_sample_value("linkwise_faults_total", {"stage": stage})


@pytest_asyncio.fixture
async def cluster():
    async with Cluster() as running:
        running.node()
        yield running


@pytest.fixture(autouse=True)
def logs():
    # Rendering a traceback takes longer than the tests.
    with capture_logs() as lines:
        yield lines


@asynccontextmanager
async def led(cluster, clock=None):
    """Lead while the block runs; fail if the leader ended meanwhile."""
    cluster.term = 7
    leading = Leading(cluster, clock or Clock())
    async with leading.kube:
        task = asyncio.create_task(leading.leader.lead(7))
        leading.task = task
        await until(lambda: leading.context and leading.context.missing() is None)
        try:
            yield leading
            assert not task.done()
        finally:
            task.cancel()
            await asyncio.wait((task,))


def breaks(part, method="PATCH"):
    return lambda sent, path: sent == method and part in path


def fault_lines(logs, stage):
    """Return the log lines about faults at a stage."""
    lines = [line for line in logs if line["event"] == "Work on one unit failed"]
    return [line for line in lines if line["stage"] == stage]


async def others_are_placed(cluster, name="other"):
    cluster.pod(name)
    await until(lambda: cluster.allocated(name))


async def a_gang_is_due(cluster, clock):
    """Let the deadline of a gang pass after a scheduler tried its pods."""
    cluster.mark_unschedulable("bert-0", "bert-1")
    await others_are_placed(cluster, "tried")
    clock.now += 100


async def test_a_pod_whose_patch_cannot_be_encoded_backs_off_and_releases_its_gpus(cluster, logs):
    async with led(cluster) as leading:
        leading.kube.breaks = breaks("/pods/cursed")
        cluster.pod("cursed", 8, priority=1)
        await until(lambda: "fault of the scorer" in cluster.events("WaitingForGPUs")[0]["message"])
        assert leading.failed(Stage.COMMIT) >= 1
        await others_are_placed(cluster)

        leading.kube.breaks = breaks("/none")
        cluster.delete("other")
        await until(lambda: cluster.allocated("cursed"))

    assert fault_lines(logs, Stage.COMMIT)[0]["unit"] == "('team', 'cursed')"


async def test_a_patch_that_cannot_be_encoded_does_not_stop_the_other_members(cluster):
    async with led(cluster) as leading:
        leading.kube.breaks = breaks("/pods/bert-1")
        cluster.gang(gpus=2)
        await until(lambda: cluster.allocated("bert-0") and leading.failed(Stage.COMMIT) > 1)
        await others_are_placed(cluster)
        leading.kube.breaks = breaks("/none")
        await until(lambda: cluster.allocated("bert-1"))


async def test_an_invalid_clock_leaves_no_gpus_assumed(cluster):
    clock = Clock()
    async with led(cluster, clock) as leading:
        # Too large for nanoseconds. With infinity, timers of the event loop would be due at NaN.
        clock.now = 1e300
        cluster.pod("alone", 8)
        cluster.pod("single", 8, gates=())
        known = leading.context.informers.state.pod
        await until(lambda: leading.failed(Stage.COMMIT) >= 1 and known(("team", "single")))
        binding = Binding("single", "team", "single", "gpu-0")
        await until(lambda: known(("team", "alone")).usage.record is None)
        assert "fault of the scorer" in (await leading.context.binder.bind(binding)).reason
        assert leading.failed(Stage.BIND) == 1
        clock.now = Clock().now
        await until(lambda: cluster.allocated("alone"))


async def test_a_gang_whose_plan_cannot_be_encoded_backs_off(cluster, logs):
    async with led(cluster) as leading:
        leading.kube.breaks = breaks("/gangs", "POST")
        cluster.gang()
        await until(lambda: leading.failed(Stage.RECORD) >= 1)
        await others_are_placed(cluster)
        assert cluster.patches("bert-0") == []
        leading.kube.breaks = breaks("/none")
        cluster.delete("other")
        await until(lambda: cluster.allocated("bert-0", "bert-1"))

    assert fault_lines(logs, Stage.RECORD)


async def test_a_status_that_cannot_be_encoded_is_written_later(cluster, logs):
    async with led(cluster) as leading:
        leading.kube.breaks = breaks("/status")
        cluster.gang()
        await until(lambda: cluster.allocated("bert-0", "bert-1"))
        cluster.bind("bert-0", "bert-1")
        await until(lambda: leading.failed(Stage.REPORT) >= 1)
        leading.kube.breaks = breaks("/none")
        await until(lambda: cluster.phase() == "Placed")

    assert fault_lines(logs, Stage.REPORT)


async def test_an_event_of_a_node_that_cannot_be_encoded_is_written_later(cluster):
    async with led(cluster) as leading:
        leading.kube.breaks = breaks("/namespaces/default/events", "POST")
        cluster.pod("unknown", 8, gates=(), nodeName="gpu-0", phase="Running")
        await until(lambda: leading.failed(Stage.REPORT) >= 2)
        leading.kube.breaks = breaks("/none")
        await until(lambda: cluster.events("NodeUnaccounted"))


async def test_an_owner_whose_read_raises_is_read_later(cluster):
    container = {"name": "c", "resources": {"limits": {keys.GPU_WHOLE: 4}}}
    replicas = {"replicas": 2, "template": {"spec": {"containers": [container]}}}
    path = "/apis/kubeflow.org/v1/namespaces/team/pytorchjobs/bert"
    spec = {"pytorchReplicaSpecs": {"Worker": replicas}}
    cluster.put(path, {"metadata": {"uid": "job"}, "spec": spec})
    async with led(cluster) as leading:
        leading.kube.breaks = breaks("/pytorchjobs/", "GET")
        cluster.gang(size=None)
        await until(lambda: leading.failed(Stage.SIZE) >= 2)
        leading.kube.breaks = breaks("/none")
        await until(lambda: cluster.allocated("bert-0", "bert-1"))


async def test_a_gang_whose_assembly_raises_does_not_stop_others(cluster, monkeypatch):
    order = unit.rank_order

    def raises(pod):
        if pod.metadata.name == "bert-0":
            raise RuntimeError("unforeseen")
        return order(pod)

    async with led(cluster) as leading:
        monkeypatch.setattr(unit, "rank_order", raises)
        cluster.gang()
        await until(lambda: leading.failed(Stage.ASSEMBLE) >= 1)
        await others_are_placed(cluster)
        cluster.delete("other")
        monkeypatch.setattr(unit, "rank_order", order)
        await until(lambda: cluster.allocated("bert-0", "bert-1"))


async def test_a_plan_whose_tracking_raises_is_tracked_later(cluster, monkeypatch):
    eviction_blocker, clock = workload_informer.eviction_blocker, Clock()

    def raises(*_):
        raise RuntimeError("unforeseen")

    async with led(cluster, clock) as leading:
        cluster.gang(gpus=2)
        await until(lambda: cluster.allocated("bert-0", "bert-1"))
        monkeypatch.setattr(workload_informer, "eviction_blocker", raises)
        await a_gang_is_due(cluster, clock)
        await others_are_placed(cluster)
        await until(lambda: leading.failed(Stage.TRACK) >= 1)
        monkeypatch.setattr(workload_informer, "eviction_blocker", eviction_blocker)
        await until(lambda: cluster["bert-0"] is None)


async def test_an_eviction_that_raises_stops_no_other_unit_and_leaves_its_own_whole(cluster):
    clock = Clock()
    async with led(cluster, clock) as leading:
        cluster.gang(gpus=2)
        await until(lambda: cluster.allocated("bert-0", "bert-1"))
        leading.kube.breaks = breaks("/pods/bert-0/eviction", "POST")
        await a_gang_is_due(cluster, clock)
        await others_are_placed(cluster)
        await until(lambda: leading.failed(Stage.EVICT) >= 1)
        assert cluster["bert-1"]
        leading.kube.breaks = breaks("/none")
        await until(lambda: cluster["bert-0"] is None and cluster["bert-1"] is None)


async def test_a_binding_that_cannot_be_encoded_is_refused_and_releases_its_gpus(cluster):
    async with led(cluster) as leading:
        leading.kube.breaks = breaks("/binding", "POST")
        cluster.pod("single", 8, gates=())
        known = leading.context.informers.state.pod
        await until(lambda: known(("team", "single")))
        binding = Binding("single", "team", "single", "gpu-0")
        assert "fault of the scorer" in (await leading.context.binder.bind(binding)).reason
        await others_are_placed(cluster)
        assert leading.failed(Stage.BIND) == 1


async def test_planning_that_raises_is_counted(cluster, monkeypatch):
    # Columns hold 64 bits: this amount raises during planning.
    monkeypatch.setattr(node_columns, "_MAX_AMOUNT", 1 << 80)
    async with led(cluster) as leading:
        cluster.gang("huge", 2, 1 << 64, priority=1)
        await until(lambda: leading.failed(Stage.PLAN) >= 1)
        await others_are_placed(cluster)


async def test_lost_leadership_ends_the_leader_at_any_stage(cluster):
    async with led_until_deposed(cluster) as leading:
        leading.kube.error = LeadershipLost("another leads")
        leading.kube.breaks = breaks("/pods/alone")
        cluster.pod("alone")
        await until(leading.task.done)


@asynccontextmanager
async def led_until_deposed(cluster):
    leading = Leading(cluster, Clock())
    async with leading.kube:
        leading.task = asyncio.create_task(leading.leader.lead(7))
        await until(lambda: leading.context and leading.context.missing() is None)
        yield leading
        await leading.task


def test_every_stage_is_counted_from_the_start():
    registry = CollectorRegistry()
    Metrics(registry)

    lines = generate_latest(registry).decode().splitlines()
    assert [line for line in lines if line.startswith("linkwise_faults_total")] == [
        f'linkwise_faults_total{{stage="{stage}"}} 0.0' for stage in Stage
    ]
