"""Lost, late and deleted objects: no card gives more than it has, and no GPU is lost."""

import asyncio
from collections import deque
from contextlib import suppress

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from support import virtual_time
from support.builders import TIMESLICED, a_machine, a_node, a_pod

from linkwise.cluster import keys
from linkwise.cluster.account.accounting import ledger_of
from linkwise.cluster.allocations.record import parse_record
from linkwise.cluster.objects.pod import Pod
from linkwise.planning.gang.pod_info import pod_info
from linkwise.runtime.kube.client import ApiError, Kube, Unreachable
from scorer.cache.informers import Informers
from scorer.extender.bind import Binder
from scorer.extender.filter import Filter
from scorer.extender.wire import Binding
from scorer.metrics import Metrics
from scorer.queue.fault_isolation import FaultIsolation
from scorer.timings import Timings

# Each node has room for one of two pods: a cache that misses one of them overcommits the node.
NODES = {
    "memory": a_node("memory", a_machine(1), "share", card_memory=8),
    "both": a_node("both", a_machine(1), "core_mem", card_memory=16),
    "whole": a_node("whole", a_machine(2), "topology"),
    "sliced": a_node("sliced", a_machine(2), "timeslice", replicas=2),
}
LIMITS = (
    {keys.GPU_MEM: 5},
    {keys.GPU_MEM: 7},
    {keys.GPU_MEM: 4, keys.GPU_CORE: 60},
    {keys.GPU_MEM: 4, keys.GPU_CORE: 45},
    {keys.GPU_WHOLE: 1},
    {keys.GPU_WHOLE: 2},
    {keys.NVIDIA_GPU_SHARED: 2},
    {keys.NVIDIA_GPU_SHARED: 3},
)
NAMES = st.sampled_from("abcdefgh")
FATES = st.sampled_from(("done", "refused", "lost", "late", "unanswered", "broken"))
BIND = st.tuples(st.just("bind"), NAMES, st.integers(0, 3), FATES)
STEPS = st.lists(
    st.one_of(
        *[BIND] * 4,
        st.tuples(st.just("replace"), NAMES, st.sampled_from(LIMITS)),
        st.tuples(st.just("deliver"), st.integers(1, 9)),
        st.tuples(st.just("wait"), st.sampled_from((0.2, 1.0, 2.5))),
    ),
    max_size=40,
)


class Api:
    """An API server that answers some, and a scheduler's view of it."""

    def __init__(self):
        self.pods, self.events, self.uids = {}, deque(), 0
        self.fate = "done"

    def put(self, name, pod):
        """Let a pod be as it is now; None: it is gone."""
        self.pods[name] = pod
        self.events.append((name, pod))

    def make(self, name, limits):
        self.uids += 1
        tied = TIMESLICED if keys.NVIDIA_GPU_SHARED in limits else {}
        raw = a_pod(limits, name=name, **tied)
        raw["metadata"]["uid"] = f"u{self.uids}"
        self.put(name, raw)

    def apply(self, name, body):
        pod = self.pods.get(name)
        if pod is None or pod["metadata"]["uid"] != body["metadata"]["uid"]:
            raise ApiError(404, "", "it is gone")
        if pod["spec"].get("nodeName"):
            raise ApiError(409, "", "it has a node")
        metadata = {**pod["metadata"], "annotations": body["metadata"]["annotations"]}
        spec = {**pod["spec"], "nodeName": body["target"]["name"]}
        self.put(name, {**pod, "metadata": metadata, "spec": spec})

    def try_to_apply(self, name, body):
        with suppress(ApiError):
            self.apply(name, body)

    async def create(self, path, body, _returns, **_):
        name, fate = path.split("/")[-2], self.fate
        await asyncio.sleep(0.1)
        match fate:
            case "refused":
                raise ApiError(403, "", "a policy")
            case "lost":
                await asyncio.sleep(1.9)
                raise Unreachable("no answer")
            case "late":
                # An API server gives a write up after the time that it was granted, 2 s.
                asyncio.get_running_loop().call_later(1.8, self.try_to_apply, name, body)
                raise Unreachable("the connection broke")
        self.apply(name, body)
        if fate == "unanswered":
            raise Unreachable("no answer")
        if fate == "broken":
            raise ApiError(504, "", "it did not complete in time")

    find = Kube.find

    async def get(self, path, returns, **_):
        await asyncio.sleep(0.1)
        if self.fate == "lost":
            self.fate = "done"
            raise Unreachable("no answer")
        pod = self.pods.get(path.split("/")[-1])
        if pod is None:
            raise ApiError(404, "", "it is gone")
        return msgspec.convert(pod, returns)

    def check(self):
        """Fail where a card gives more than it has; return who has what."""
        pods = [msgspec.convert(raw, Pod) for raw in self.pods.values() if raw]
        truth = ledger_of(NODES.values(), pods)
        assert [one.unaccounted for one in truth.nodes.values()] == [None] * len(NODES)
        for pod in pods:
            record = parse_record(pod.annotations)
            assert bool(record) == bool(pod.spec.node_name)
        return truth


class Run:
    """A binder, what asks it, and what its watch shows."""

    def __init__(self):
        self.api = Api()
        self.informers = Informers(self.api)
        self.state = self.informers.state
        for name, node in NODES.items():
            self.state.update_node(name, node)
        faults = FaultIsolation(Metrics(CollectorRegistry()), self.informers.changed.set)
        self.binder = Binder(
            self.api,
            self.informers,
            faults,
            term=1,
            clock=lambda: 0,
            timings=Timings(),
        )
        self.filter = Filter(self.state)
        self.asked = []
        for name, limits in zip("abcdefgh", LIMITS, strict=True):
            self.api.make(name, limits)
        self.deliver(len(LIMITS))

    def bind(self, name, node):
        uid = self.api.pods[name]["metadata"]["uid"]
        return self.binder.bind(Binding(name, "default", uid, node))

    def deliver(self, number):
        """Let the watch show what happened next."""
        for _ in range(min(number, len(self.api.events))):
            name, raw = self.api.events.popleft()
            self.state.update_pod(("default", name), raw and pod_info(msgspec.convert(raw, Pod)))

    async def do(self, step):
        match step:
            case "replace", name, limits:
                self.api.put(name, None)
                self.api.make(name, limits)
            case "bind", name, number, fate:
                pod = msgspec.convert(self.api.pods[name], Pod)
                fits = self.filter.run(pod, tuple(NODES)).names or tuple(NODES)
                self.api.fate = fate
                node = fits[number % len(fits)]
                self.asked.append(asyncio.create_task(self.bind(name, node)))
            case "deliver", number:
                self.deliver(number)
            case "wait", seconds:
                await asyncio.sleep(seconds)
        await asyncio.sleep(0)
        self.api.check()

    async def end(self):
        """Wait until nothing is under way, and all is shown."""
        self.api.fate = "done"
        await asyncio.sleep(60)
        self.deliver(len(self.api.events))
        assert all(one.result() is None or one.result().reason for one in self.asked)
        assert not self.state._assumed

    async def bind_the_rest(self):
        """Bind again who is bound, and who is not where there is room."""
        for name, raw in self.api.pods.items():
            there = raw["spec"].get("nodeName")
            fits = self.filter.run(msgspec.convert(raw, Pod), tuple(NODES)).names
            for node in [there] if there else fits[:1]:
                assert await self.bind(name, node) is None
                self.deliver(len(self.api.events))


@settings(max_examples=200)
@given(STEPS)
def test_no_card_is_overallocated_or_leaked(steps):
    async def scenario():
        run = Run()
        running = asyncio.create_task(run.binder.run())
        for step in steps:
            await run.do(step)
        await run.end()
        truth, found = run.api.check(), run.state.snapshot().ledger
        assert {n: one.taken for n, one in found.nodes.items()} == {
            n: one.taken for n, one in truth.nodes.items()
        }
        await run.bind_the_rest()
        run.api.check()
        running.cancel()
        await asyncio.wait((running,))

    virtual_time.run(scenario())
