from dataclasses import replace

import pytest
from support.builders import a_machine

from agent.control.desired_state import UNUSED, Observation, ProblemReason, desired_state
from agent.driver.reading import GPU, DriverReading
from agent.kubelet.container_devices import ContainerDevices
from linkwise.cluster import keys
from linkwise.cluster.mode import NodeMode

N = 4
MACHINE = a_machine(N, memory=(16,) * N)
READING = DriverReading(
    driver="535.161.08",
    cuda="12.2",
    gpus=tuple(GPU(i, f"GPU-{i}", f"0000:0{i}:00.0", "Tesla T4", 16 << 30) for i in range(N)),
    levels=MACHINE.levels,
    links=MACHINE.links,
    switched=False,
)
IDLE = Observation(
    labels={keys.NODE_MODE: "topology"},
    reading=READING,
    machine=MACHINE,
    allocated=(),
    unlisted=(),
    bound={},
    mode=None,
    no_cdi=None,
)


def devices(resource: str, *ids: str, pod: str = "a") -> ContainerDevices:
    return ContainerDevices("default", pod, "main", resource, frozenset(ids))


def offered(seen: Observation) -> set[str]:
    return {offer.resource for offer in desired_state(seen).slots}


def reasons(seen: Observation) -> list[ProblemReason]:
    return [problem.reason for problem in desired_state(seen).problems]


@pytest.mark.parametrize(
    ("labels", "resources"),
    [
        ({keys.NODE_MODE: "topology"}, {keys.GPU_WHOLE}),
        ({keys.NODE_MODE: "topology", keys.RESOURCE_NAME: "nvidia.com-gpu"}, {keys.NVIDIA_GPU}),
        ({keys.NODE_MODE: "share"}, {keys.GPU_MEM, keys.GPU_COUNT}),
        ({keys.NODE_MODE: "core_mem"}, {keys.GPU_MEM, keys.GPU_COUNT, keys.GPU_CORE}),
        ({}, set()),
        ({keys.NODE_MODE: "mig"}, set()),
    ],
    ids=["topology", "NVIDIA's name", "share", "core_mem", "no mode", "mig"],
)
def test_an_idle_node_offers_the_resources_of_its_mode(labels, resources):
    seen = replace(IDLE, labels=labels)
    assert offered(seen) == resources
    assert reasons(seen) == []


def test_a_mode_is_not_switched_while_a_container_has_devices():
    used = devices(keys.GPU_WHOLE, "slot-0")
    seen = replace(
        IDLE,
        labels={keys.NODE_MODE: "core_mem"},
        allocated=(used,),
        mode=NodeMode.TOPOLOGY,
    )
    state = desired_state(seen)
    assert state.mode is NodeMode.TOPOLOGY
    assert offered(seen) == {keys.GPU_WHOLE}
    [problem] = state.problems
    assert problem.reason is ProblemReason.MODE_NOT_SWITCHED
    assert "in use by pods of this node" in problem.message
    assert "default" not in problem.message
    assert offered(replace(seen, allocated=())) == {keys.GPU_MEM, keys.GPU_COUNT, keys.GPU_CORE}


@pytest.mark.parametrize(
    "unlisted",
    [
        devices(keys.GPU_WHOLE, "slot-0"),
        replace(devices(keys.GPU_WHOLE, "slot-0", pod="x"), namespace=""),
    ],
    ids=["binding", "checkpoint"],
)
@pytest.mark.parametrize("mode", [NodeMode.TOPOLOGY, None], ids=["same agent", "restarted agent"])
def test_a_mode_is_not_switched_while_the_kubelet_lists_nothing_yet(unlisted, mode):
    labels = {keys.NODE_MODE: "core_mem"}
    state = desired_state(replace(IDLE, labels=labels, unlisted=(unlisted,), mode=mode))
    assert state.mode is NodeMode.TOPOLOGY
    assert [offer.resource for offer in state.slots] == [keys.GPU_WHOLE]
    assert "in use by pods of this node" in state.problems[0].message


@pytest.mark.parametrize(
    ("allocated", "kept"),
    [
        ([devices(keys.GPU_WHOLE, "slot-1")], NodeMode.TOPOLOGY),
        ([devices(keys.NVIDIA_GPU, "slot-1")], NodeMode.TOPOLOGY),
        ([devices(keys.GPU_MEM, "slot-1"), devices(keys.GPU_CORE, "slot-7")], NodeMode.CORE_MEM),
        ([devices(keys.GPU_MEM, "slot-1")], NodeMode.SHARE),
        ([devices(keys.NVIDIA_GPU_SHARED, "slot-1")], NodeMode.TIMESLICE),
    ],
    ids=["whole", "NVIDIA's name", "memory and compute", "memory", "replica"],
)
def test_a_restarted_agent_keeps_the_mode_that_is_in_use(allocated, kept):
    labels = {keys.NODE_MODE: "topology" if kept is not NodeMode.TOPOLOGY else "share"}
    seen = replace(
        IDLE, labels=labels | {keys.GFD_REPLICAS: "4"}, allocated=tuple(allocated), mode=None
    )
    assert desired_state(seen).mode is kept
    assert {part.resource for part in allocated} <= offered(seen)
    assert reasons(seen) == [ProblemReason.MODE_NOT_SWITCHED]


@pytest.mark.parametrize(
    ("parts", "mode"),
    [
        ({"allocated": (devices(keys.GPU_WHOLE, "slot-0"),)}, "topology"),
        ({"unlisted": (devices(keys.GPU_MEM, "slot-0"),), "mode": NodeMode.CGPU}, "cgpu"),
        ({"allocated": (devices(keys.NVIDIA_GPU, "GPU-0"),)}, UNUSED),
        ({}, UNUSED),
    ],
    ids=["listed", "in other books", "of another plugin", "idle"],
)
def test_a_mode_is_in_use_while_a_container_has_devices_of_the_agent(parts, mode):
    assert desired_state(replace(IDLE, **parts)).mode_in_use == mode


def test_a_mode_that_waits_is_not_the_one_in_use():
    used = devices(keys.GPU_WHOLE, "slot-0")
    labels = {keys.NODE_MODE: "core_mem"}
    assert desired_state(replace(IDLE, labels=labels, allocated=(used,))).mode_in_use == "topology"


def test_nothing_is_offered_without_a_specification_of_nvidia():
    seen = replace(IDLE, no_cdi="install the toolkit")
    assert offered(seen) == set()
    assert [problem.message for problem in desired_state(seen).problems] == ["install the toolkit"]


def test_nothing_is_offered_beside_devices_of_another_plugin():
    seen = replace(
        IDLE,
        labels={keys.NODE_MODE: "topology", keys.RESOURCE_NAME: "nvidia.com-gpu"},
        allocated=(devices(keys.NVIDIA_GPU, "GPU-0"),),
    )
    assert offered(seen) == set()
    [problem] = desired_state(seen).problems
    assert problem.reason is ProblemReason.NOTHING_OFFERED
    assert "default" not in problem.message


def test_a_faulty_gpu_makes_the_slot_of_its_container_unhealthy():
    gpus = (replace(READING.gpus[0], fault="XID 79"), *READING.gpus[1:])
    seen = replace(
        IDLE,
        reading=replace(READING, gpus=gpus),
        allocated=(devices(keys.GPU_WHOLE, "slot-2"), devices(keys.GPU_WHOLE, "slot-0", pod="b")),
        bound={("default", "a", "main"): {0}, ("default", "b", "main"): {1}},
    )
    state = desired_state(seen)
    assert list(state.slots.values()) == [frozenset({"slot-2"})]
    assert [problem.message for problem in state.problems] == ["GPU 0 (GPU-0): XID 79"]
