"""The GPUs of a container, by the record of its pod."""

import json
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.gpu_readings import gpu, reading
from support.strategies import JSON

from agent.binding.container_gpus import conflicts, container_gpus
from agent.binding.container_spec import Binding
from agent.binding.errors import BindError
from linkwise.cluster.allocations.gpus import GPUShare
from linkwise.cluster.keys import ALLOCATION
from linkwise.cluster.objects.pod import Pod

WHOLE, SHARE, REPLICA = "aliyun.com/gpu", "aliyun.com/gpu-mem", "nvidia.com/gpu.shared"
NVIDIA = "nvidia.com/gpu"


def container(name, resource=WHOLE, amount=1, **fields):
    return {"name": name, "resources": {"limits": {resource: amount}}, **fields}


def pod(gpus, *containers, init=(), node="n1", record=None, labels=None):
    text = json.dumps(record or {"v": 1, "node": node, "gpus": gpus})
    metadata = {"name": "p", "namespace": "ns", "uid": "u1", "labels": labels or {}}
    if gpus is not None or record is not None:
        metadata["annotations"] = {ALLOCATION: text}
    spec = {"containers": list(containers), "initContainers": list(init), "nodeName": "n1"}
    return msgspec.convert({"metadata": metadata, "spec": spec}, Pod)


def gpus_of(pod, name="main", resource=WHOLE, now=None):
    found = container_gpus(pod, name, resource, "n1", now or reading())
    return [share.i for share in found]


def whole(*indices):
    return [{"i": i, "uuid": f"GPU-{i}"} for i in indices]


SEVERAL = pod(
    whole(2, 0, 3, 1),
    container("main", amount=2),
    container("second"),
    init=[
        container("fetch", amount=3),
        container("proxy", restartPolicy="Always"),
        container("check", amount=3),
    ],
)


@pytest.mark.parametrize(
    ("name", "gpus"),
    [
        ("main", [2, 0]),
        ("second", [3]),
        ("fetch", [2, 0, 3]),
        ("proxy", [1]),
        ("check", [2, 0, 3]),
    ],
)
def test_each_container_has_its_part_of_the_record(name, gpus):
    assert gpus_of(SEVERAL, name) == gpus


def test_nvidia_gpus_of_an_exact_node_come_from_the_record():
    recorded = pod(whole(2, 0), container("main", NVIDIA, 2))

    assert gpus_of(recorded, resource=NVIDIA) == [2, 0]
    with pytest.raises(BindError, match="bypassed Linkwise"):
        gpus_of(pod(None, container("main", NVIDIA, 2)), resource=NVIDIA)


def test_every_container_of_a_share_has_all_its_cards():
    shares = [{"i": 1, "mem": 3}, {"i": 3, "mem": 3}]
    two = pod(
        shares,
        container("a", SHARE, 4),
        container("b", SHARE, 2),
        labels={"aliyun.com/gpu-count": "2"},
    )

    assert gpus_of(two, "a", SHARE) == gpus_of(two, "b", SHARE) == [1, 3]


def test_a_gpu_has_another_index_where_the_node_started_without_one_before_it():
    now = reading(gpu(0), gpu(1, uuid="GPU-2"), gpu(2, uuid="GPU-3"))
    assert gpus_of(pod(whole(3, 0), container("main", amount=2)), now=now) == [2, 0]

    def bound(uid, *gpus):
        return replace(binding(uid, WHOLE), gpus=gpus)

    old = bound("u2", GPUShare(3, "GPU-3"))
    assert conflicts(bound("u1", GPUShare(2, "GPU-3")), [old]) == (old,)
    assert conflicts(bound("u1", GPUShare(3, "GPU-4")), [old]) == ()


def test_a_replica_may_repeat_a_gpu():
    assert gpus_of(pod(whole(1, 1), container("main", REPLICA, 2)), "main", REPLICA) == [1, 1]


def test_gpus_have_the_uuid_of_the_driver_where_the_record_has_none():
    (share,) = container_gpus(
        pod([{"i": 2, "mem": 4}], container("main", SHARE, 4)), "main", SHARE, "n1", reading()
    )

    assert share == GPUShare(2, "GPU-2", 4)


@pytest.mark.parametrize(
    ("of", "now", "reason"),
    [
        pytest.param(pod(None, container("main")), None, "bypassed Linkwise", id="no record"),
        pytest.param(
            pod([], container("main"), record={"v": 9}), None, "unreadable", id="unreadable"
        ),
        pytest.param(pod(whole(1), container("main"), node="n2"), None, "node n2", id="node"),
        pytest.param(pod(whole(1, 2), container("main")), None, "names 2 GPUs", id="too many"),
        pytest.param(pod(whole(1), container("main", amount=2)), None, "asks for 2", id="too few"),
        pytest.param(
            pod(whole(1, 1), container("main", amount=2)), None, "twice", id="one GPU twice"
        ),
        pytest.param(pod(whole(1), container("other")), None, "does not ask", id="container"),
        pytest.param(
            pod([{"i": 1, "mem": 4}], container("main", SHARE, 4)),
            None,
            "does not ask",
            id="resource",
        ),
        pytest.param(pod(whole(7), container("main")), None, "no GPU 7", id="index"),
        pytest.param(
            pod(whole(1), container("main")),
            reading(gpu(0), gpu(1, uuid="GPU-new")),
            "was GPU-1 when it was allocated, and is GPU-new",
            id="replaced GPU",
        ),
        pytest.param(
            pod(whole(1), container("main")),
            reading(gpu(0), gpu(1, fault="XID 79")),
            "unusable: XID 79",
            id="fault",
        ),
        pytest.param(
            pod(whole(1), container("main")), reading(gpu(0), gpu(1, mig=True)), "MIG", id="MIG"
        ),
    ],
)
def test_a_record_that_cannot_be_obeyed_is_refused_with_a_remedy(of, now, reason):
    with pytest.raises(BindError, match=reason) as refusal:
        gpus_of(of, now=now)

    assert "delete the pod" in str(refusal.value)


@given(record=JSON | st.text())
def test_any_record_gives_healthy_gpus_or_an_error(record):
    text = record if isinstance(record, str) else json.dumps(record)
    strange = msgspec.structs.replace(
        SEVERAL, metadata=msgspec.structs.replace(SEVERAL.metadata, annotations={ALLOCATION: text})
    )
    with pytest.raises(BindError):
        gpus_of(strange)


@given(
    order=st.permutations(range(8)),
    apps=st.lists(st.integers(1, 3), min_size=1, max_size=4),
    init=st.lists(st.tuples(st.integers(1, 3), st.booleans()), max_size=4),
)
def test_containers_that_run_together_never_have_one_gpu(order, apps, init):
    sidecars = 0
    total = sum(apps) + sum(amount for amount, sidecar in init if sidecar)
    for amount, sidecar in init:
        total = max(total, sidecars + amount)
        sidecars += amount if sidecar else 0
    if total > 8:
        return
    of = pod(
        whole(*order[:total]),
        *(container(f"app{k}", amount=amount) for k, amount in enumerate(apps)),
        init=[
            container(f"init{k}", amount=amount, **({"restartPolicy": "Always"} if sidecar else {}))
            for k, (amount, sidecar) in enumerate(init)
        ],
    )
    now = reading(*map(gpu, range(8)))
    has = {
        name: set(gpus_of(of, name, now=now))
        for name in [f"app{k}" for k in range(len(apps))] + [f"init{k}" for k in range(len(init))]
    }
    stays = [f"init{k}" for k, (_, sidecar) in enumerate(init) if sidecar]
    together = stays + [f"app{k}" for k in range(len(apps))]
    assert len(set().union(*(has[name] for name in together))) == sum(
        len(has[name]) for name in together
    )
    for k, (amount, _) in enumerate(init):
        before = set().union(*(has[name] for name in stays if int(name[4:]) < k))
        assert len(has[f"init{k}"]) == amount
        assert before.isdisjoint(has[f"init{k}"])


def binding(uid, resource, *gpus):
    return Binding("ns", uid, uid, "main", resource, frozenset({uid}), tuple(map(GPUShare, gpus)))


@pytest.mark.parametrize(
    ("other", "conflict"),
    [
        pytest.param(binding("u2", WHOLE, 1, 2), True, id="whole and whole"),
        pytest.param(binding("u2", SHARE, 1), True, id="whole and share"),
        pytest.param(binding("u2", REPLICA, 1), True, id="whole and replica"),
        pytest.param(binding("u2", WHOLE, 2), False, id="another GPU"),
        pytest.param(binding("u1", WHOLE, 1), False, id="same pod"),
    ],
)
def test_a_whole_gpu_belongs_to_one_pod(other, conflict):
    wanted = binding("u1", WHOLE, 0, 1)

    assert conflicts(wanted, [other]) == ((other,) if conflict else ())


@pytest.mark.parametrize("resource", [SHARE, REPLICA])
def test_shares_of_one_resource_may_have_the_same_gpu(resource):
    assert conflicts(binding("u1", resource, 1), [binding("u2", resource, 1)]) == ()


def test_a_share_and_a_replica_may_not_have_the_same_gpu():
    assert conflicts(binding("u1", SHARE, 1), [binding("u2", REPLICA, 1)])
