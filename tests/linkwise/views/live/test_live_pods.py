"""Memory of the pods that a live page keeps."""

import gc
import json
import tracemalloc

import msgspec
import pytest
from support.builders import a_held_pod

from linkwise.cluster import keys
from linkwise.planning.gang.compact_pod import MAX_BYTES
from linkwise.views.live.live_cluster import read_pod
from linkwise.views.live.live_pods import SMALL, LivePods

LARGE = 1 << 20


def raw(name="a", labels=None, annotations=None, **spec):
    pod = a_held_pod(1, name)
    pod["metadata"].update(
        namespace="team", labels=labels or {}, annotations=annotations or {}, uid=f"uid-{name}"
    )
    pod["spec"].update(spec)
    return msgspec.Raw(json.dumps(pod).encode())


def required(size):
    values = [f"{number:x>60}" for number in range(size // 63)]
    term = {"matchExpressions": [{"key": "a", "operator": "NotIn", "values": values}]}
    terms = {"nodeSelectorTerms": [term]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def many(size):
    return {f"example.com/{number:x>40}": "y" * 60 for number in range(size // 115)}


def test_a_usual_pod_is_kept_as_it_is():
    usual = raw(labels=many(2000), affinity=required(4000))
    assert LivePods().read(usual) == read_pod(usual)


@pytest.mark.parametrize(
    "large",
    [
        pytest.param({"labels": many(LARGE)}, id="labels"),
        pytest.param({"affinity": required(LARGE)}, id="affinity"),
        pytest.param({"nodeSelector": many(LARGE)}, id="node selector"),
        pytest.param({"annotations": {f"{keys.PREFIX}a": "x" * LARGE}}, id="annotations of ours"),
        pytest.param(
            {"containers": [{"name": f"c{number}"} for number in range(LARGE // 20)]},
            id="containers",
        ),
    ],
)
def test_little_is_kept_of_large_pods_and_what_they_have_is_known(large):
    count, record = 20, {keys.GPU_COUNT: "1"}
    raws = [
        raw(f"pod-{i}", **{**large, "labels": {**large.get("labels", {}), **record}})
        for i in range(count)
    ]
    pods = LivePods()
    pods.read(raws[0])
    tracemalloc.start()
    try:
        kept = [pods.read(each) for each in raws]
        gc.collect()
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used < count * 2 * SMALL
    assert {pod.metadata.labels[keys.GPU_COUNT] for pod in kept} == {"1"}
    assert all(pod.spec.is_gated for pod in kept)


def test_all_namespaces_together_keep_little_of_small_pods_with_many_labels():
    labels = {f"k{number}": "v" for number in range(SMALL // 14)}
    pods = LivePods(namespace_max=1 << 20, total_max=2 << 20)
    small = raw(labels=labels)
    assert memoryview(small).nbytes < SMALL
    kept = []
    for number in range(100):
        pod = json.loads(bytes(small))
        pod["metadata"].update(name=f"pod-{number}", namespace=f"team-{number % 4}")
        kept.append(pods.read(msgspec.Raw(json.dumps(pod).encode())))
    whole = [pod for pod in kept if len(pod.metadata.labels or ()) > 100]
    assert 0 < len(whole) < 50


def test_a_namespace_keeps_what_its_pods_require_of_nodes_up_to_a_limit():
    size = MAX_BYTES // 2
    room = 5
    pods = LivePods(8 * room * size)
    items = {}
    for number in range(3 * room):
        pod = pods.read(raw(f"pod-{number}", affinity=required(size)))
        items["team", pod.metadata.name] = pod
    whole = [pod for pod in items.values() if pod.spec.affinity]
    assert room <= len(whole) < 3 * room

    gone = [key for key, pod in items.items() if pod.spec.affinity]
    for key in gone:
        del items[key]
    pods.changed(items, set(gone))
    assert pods.read(raw("next", affinity=required(size))).spec.affinity
