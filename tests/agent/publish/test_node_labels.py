from dataclasses import replace

import msgspec
import pytest

from agent.driver.reading import GPU, DriverReading
from agent.publish.node_labels import (
    FIELD_MANAGER,
    LABELS,
    SERIES,
    LabelledNode,
    gpu_labels,
    labels_patch,
    publish_labels,
    read_node_labels,
)
from linkwise.cluster import keys
from linkwise.policy.models import SHIPPED
from linkwise.runtime.kube.client import ApiError, Kube

NODE = "/api/v1/nodes/gpu-0"
T4 = {
    keys.MODEL_SERIES: "T4",
    keys.DRIVER_VERSION: "535.161.08",
    keys.GFD_PRODUCT: "Tesla-T4",
    keys.GFD_COUNT: "2",
    keys.GFD_MEMORY: "15360",
    keys.GFD_DRIVER: "535.161.08",
}


def a_reading(*models, memory=15360 << 20, driver="535.161.08"):
    gpus = tuple(GPU(i, f"GPU-{i}", f"0000:0{i}:00.0", m, memory) for i, m in enumerate(models))
    return DriverReading(driver, "12.2", gpus, (), (), switched=False)


def managed(manager, *labels, operation="Update"):
    fields = {"f:metadata": {"f:labels": {".": {}, **{f"f:{label}": {} for label in labels}}}}
    return {"manager": manager, "operation": operation, "fieldsV1": fields}


def ours(*labels):
    entry = managed(FIELD_MANAGER, *labels, operation="Apply")
    del entry["fieldsV1"]["f:metadata"]["f:labels"]["."]
    return entry


def a_node(labels=None, *fields):
    metadata = {"name": "gpu-0", "uid": "uid-1", "labels": labels, "managedFields": list(fields)}
    return msgspec.convert({"metadata": metadata}, LabelledNode)


def patched(node, wanted):
    patch = labels_patch(node, wanted)
    return patch and patch["metadata"]["labels"]


# ---- The labels of a reading.


def test_labels_are_those_of_the_reading():
    assert gpu_labels(a_reading("Tesla T4", "Tesla T4")) == T4
    assert T4.keys() == set(LABELS)


def test_open_kernel_modules_are_part_of_the_driver_version_of_acs():
    labels = gpu_labels(a_reading("Tesla T4", "Tesla T4"), open_modules=True)
    assert labels == T4 | {keys.DRIVER_VERSION: "535.161.08-open"}


@pytest.mark.parametrize(
    ("reading", "missing"),
    [
        pytest.param(a_reading("NVIDIA H200"), {keys.MODEL_SERIES}, id="unknown model"),
        pytest.param(
            a_reading("Tesla T4", "NVIDIA A10"),
            {keys.MODEL_SERIES, keys.GFD_PRODUCT},
            id="different models",
        ),
        pytest.param(
            a_reading("Tesla T4", driver="(unknown)"),
            {keys.DRIVER_VERSION, keys.GFD_DRIVER},
            id="no label value",
        ),
        pytest.param(a_reading(), set(LABELS), id="no GPU"),
        pytest.param(None, set(LABELS), id="no reading"),
    ],
)
def test_unknown_values_are_left_out(reading, missing):
    assert set(LABELS) - gpu_labels(reading).keys() == missing


def test_gpus_with_different_memory_have_no_memory_label():
    reading = a_reading("Tesla T4", "Tesla T4")
    smaller = replace(reading.gpus[1], memory=8 << 30)

    labels = gpu_labels(replace(reading, gpus=(reading.gpus[0], smaller)))

    assert set(LABELS) - labels.keys() == {keys.GFD_MEMORY}


def test_series_are_models_of_the_catalogue():
    assert all(SHIPPED.find(name) for name in SERIES.values())


# ---- The labels that are ours.


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        pytest.param(a_node(), T4, id="no labels"),
        pytest.param(a_node({"zone": "a"}, managed("kubelet", "zone")), T4, id="other labels"),
        pytest.param(a_node(T4, ours(*T4)), None, id="all as they should be"),
        pytest.param(
            a_node({**T4, keys.GFD_COUNT: "1"}, ours(*T4)), T4, id="a value of ours is old"
        ),
        pytest.param(
            a_node({keys.GFD_PRODUCT: "T4"}, managed("nfd-master", keys.GFD_PRODUCT)),
            {key: value for key, value in T4.items() if key != keys.GFD_PRODUCT},
            id="a label of another manager",
        ),
        pytest.param(
            a_node(T4, ours(*T4), managed("nfd-master", keys.GFD_PRODUCT)),
            {key: value for key, value in T4.items() if key != keys.GFD_PRODUCT},
            id="another manager has set the same value",
        ),
        pytest.param(a_node(T4), {}, id="labels without a manager are not ours"),
    ],
)
def test_labels_of_others_are_left_to_them(node, expected):
    if expected == {}:
        assert labels_patch(node, T4) is None
    else:
        assert patched(node, T4) == expected


@pytest.mark.parametrize("other", [(), (managed("nfd-master", keys.GFD_PRODUCT),)])
def test_our_labels_are_removed_without_gpus(other):
    assert patched(a_node(T4, ours(*T4), *other), {}) == {}
    assert labels_patch(a_node(T4, *other), {}) is None


async def test_labels_are_applied_without_force_to_the_node_that_was_read(server):
    server.put_node()
    async with Kube(server.url) as kube:
        node = await read_node_labels(kube, "gpu-0")
        assert await publish_labels(kube, node, T4)

    body = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "gpu-0", "uid": "uid-1", "labels": T4},
    }
    query = {"fieldManager": "linkwise-agent", "force": "false"}
    assert server.writes == [("PATCH", NODE, query, body)]


async def test_labels_that_are_set_are_not_written(server):
    server.put_node(labels=T4, managed=[ours(*T4)])
    async with Kube(server.url) as kube:
        assert not await publish_labels(kube, await read_node_labels(kube, "gpu-0"), T4)

    assert server.writes == []


@pytest.mark.parametrize("status", [409, 403])
async def test_conflict_is_left_to_the_next_call_and_a_refusal_is_raised(server, status):
    server.put_node()
    server.refuses["PATCH", NODE] = status
    async with Kube(server.url) as kube:
        node = await read_node_labels(kube, "gpu-0")
        if status == 409:
            assert not await publish_labels(kube, node, T4)
        else:
            with pytest.raises(ApiError):
                await publish_labels(kube, node, T4)
