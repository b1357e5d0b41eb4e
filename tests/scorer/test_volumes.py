"""A leader places pods where their volumes can be used, and lets them wait for these."""

import pytest_asyncio
from support.servers.leader_harness import Cluster, leading
from support.volumes import (
    CLAIMS,
    CLASSES,
    CSI_NODES,
    VOLUMES,
    a_csi_node,
    a_storage_class,
    a_volume,
    a_volume_claim,
)
from support.waiting import until

NODES = ("gpu-0", "gpu-1", "gpu-2")


@pytest_asyncio.fixture
async def cluster():
    async with Cluster() as running:
        for name in NODES:
            running.node(name)
        yield running


def naming(*claims):
    """Return the volumes of a pod that names some claims."""
    return [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims]


def node_of(cluster, name):
    return cluster.record(name)["node"]


def reason(cluster):
    gang = cluster.the_gang()
    return ((gang or {}).get("status") or {}).get("reason", "")


async def test_a_pod_goes_to_the_node_of_its_volume(cluster):
    cluster.put(f"{VOLUMES}/pv", a_volume(hosts=["gpu-2"], phase="Bound"))
    cluster.put(f"{CLAIMS}/data", a_volume_claim(volume="pv"))
    async with leading(cluster):
        cluster.pod("train", volumes=naming("data"))
        await until(lambda: cluster.allocated("train"))
    assert node_of(cluster, "train") == "gpu-2"


async def test_members_go_to_the_nodes_of_their_own_volumes(cluster):
    for i, node in enumerate(("gpu-2", "gpu-0")):
        cluster.put(f"{VOLUMES}/pv-{i}", a_volume(f"pv-{i}", hosts=[node], phase="Bound"))
        cluster.put(f"{CLAIMS}/data-{i}", a_volume_claim(f"data-{i}", f"pv-{i}"))
    async with leading(cluster):
        for i in range(2):
            cluster.pod(f"bert-{i}", 4, gang="bert", volumes=naming(f"data-{i}"))
        await until(lambda: cluster.allocated("bert-0", "bert-1"))
    assert [node_of(cluster, f"bert-{i}") for i in range(2)] == ["gpu-2", "gpu-0"]


async def test_a_gang_waits_for_a_claim_and_is_planned_when_it_is_bound(cluster):
    async with leading(cluster):
        cluster.gang(volumes=naming("data"))
        await until(
            lambda: "PersistentVolumeClaim team/data, which does not exist" in reason(cluster)
        )
        cluster.put(f"{CLAIMS}/data", a_volume_claim())
        await until(lambda: "team/data, which is not bound" in reason(cluster))
        assert not cluster.record("bert-0")
        cluster.put(f"{CLAIMS}/data", a_volume_claim(volume="pv"))
        await until(lambda: "PersistentVolume pv of" in reason(cluster))
        cluster.put(f"{VOLUMES}/pv", a_volume(hosts=["gpu-1"], phase="Bound"))
        await until(lambda: cluster.allocated("bert-0", "bert-1"))
    assert {node_of(cluster, f"bert-{i}") for i in range(2)} == {"gpu-1"}
    assert not [path for method, path, _ in cluster.writes if "eviction" in path]


async def test_a_claim_that_only_one_pod_may_use_is_waited_for(cluster):
    cluster.put(f"{VOLUMES}/pv", a_volume(phase="Bound"))
    exclusive = a_volume_claim(volume="pv", accessModes=["ReadWriteOncePod"])
    cluster.put(f"{CLAIMS}/data", exclusive)
    async with leading(cluster) as leader:
        cluster.pod("first", volumes=naming("data"))
        await until(lambda: cluster.allocated("first"))
        cluster.bind("first")
        cluster.pod("second", volumes=naming("data"))
        state = leader.context.informers.state
        await until(lambda: (pod := state.pod(("team", "second"))) and pod.member)
        await until(lambda: state.pod(("team", "second")).member.volumes.waits)
        assert not cluster.record("second")
        cluster.delete("first")
        await until(lambda: cluster.allocated("second"))


async def test_of_two_pods_of_one_cycle_one_has_a_claim_that_only_one_pod_may_use(cluster):
    cluster.put(f"{VOLUMES}/pv", a_volume(phase="Bound"))
    exclusive = a_volume_claim(volume="pv", accessModes=["ReadWriteOncePod"])
    cluster.put(f"{CLAIMS}/data", exclusive)
    for name in ("first", "second"):
        cluster.pod(name, volumes=naming("data"))
    cluster.pod("z")
    async with leading(cluster):
        await until(lambda: cluster.allocated("z"))
        assert not cluster.allocated("first", "second")
        had = "first" if cluster.record("first") else "second"
        cluster.delete(had)
        await until(lambda: cluster.allocated({"first": "second", "second": "first"}[had]))


async def test_a_volume_of_a_pod_whose_write_was_refused_is_free_again(cluster):
    cluster.put(f"{VOLUMES}/pv", a_volume(phase="Bound"))
    exclusive = a_volume_claim(volume="pv", accessModes=["ReadWriteOncePod"])
    cluster.put(f"{CLAIMS}/data", exclusive)
    cluster.fail("PATCH", "first", *[(422, "refused")] * 99)
    cluster.pod("first", volumes=naming("data"), priority=10)
    cluster.pod("second", volumes=naming("data"))
    async with leading(cluster):
        await until(lambda: cluster.allocated("second"))


async def test_two_members_do_not_count_on_the_same_free_volume(cluster):
    cluster.put(f"{CLASSES}/local", a_storage_class())
    for i, node in enumerate(("gpu-0", "gpu-1")):
        local = a_volume(f"pv-{i}", hosts=[node], storage_class="local")
        cluster.put(f"{VOLUMES}/pv-{i}", local)
        claim = a_volume_claim(f"data-{i}", storage_class="local")
        cluster.put(f"{CLAIMS}/data-{i}", claim)
    async with leading(cluster):
        for i in range(2):
            cluster.pod(f"bert-{i}", 4, gang="bert", volumes=naming(f"data-{i}"))
        await until(lambda: cluster.allocated("bert-0", "bert-1"))
    assert {node_of(cluster, f"bert-{i}") for i in range(2)} == {"gpu-0", "gpu-1"}


async def test_no_more_volumes_are_attached_than_a_node_takes(cluster):
    for node in NODES:
        cluster.put(f"{CSI_NODES}/{node}", a_csi_node(node, ebs=1))
    for i in range(4):
        csi = {"driver": "ebs", "volumeHandle": f"vol-{i}"}
        cluster.put(f"{VOLUMES}/pv-{i}", a_volume(f"pv-{i}", phase="Bound", csi=csi))
        cluster.put(f"{CLAIMS}/data-{i}", a_volume_claim(f"data-{i}", f"pv-{i}"))
    async with leading(cluster):
        for i in range(3):
            cluster.pod(f"bert-{i}", 1, gang="bert", size=3, volumes=naming(f"data-{i}"))
        await until(lambda: cluster.allocated(*(f"bert-{i}" for i in range(3))))
        # A volume that is attached already takes no more room.
        cluster.pod("reader", volumes=naming("data-0"))
        await until(lambda: cluster.allocated("reader"))
        cluster.pod("late", volumes=naming("data-3"))
        cluster.put(f"{CSI_NODES}/gpu-2", a_csi_node("gpu-2", ebs=2))
        await until(lambda: cluster.allocated("late"))
    assert {node_of(cluster, f"bert-{i}") for i in range(3)} == set(NODES)
    assert node_of(cluster, "reader") == node_of(cluster, "bert-0")
    assert node_of(cluster, "late") == "gpu-2"


async def test_without_the_right_to_read_volumes_pods_are_placed_all_the_same(cluster):
    cluster.forbidden = {"persistentvolumes"}
    async with leading(cluster) as leader:
        cluster.gang(volumes=naming("data"))
        await until(lambda: cluster.allocated("bert-0", "bert-1"))
        assert leader.context.informers.volumes.objects is None


async def test_a_gang_whose_members_share_a_claim_for_one_pod_is_told_so(cluster):
    cluster.put(f"{VOLUMES}/pv", a_volume(phase="Bound"))
    exclusive = a_volume_claim(volume="pv", accessModes=["ReadWriteOncePod"])
    cluster.put(f"{CLAIMS}/data", exclusive)
    async with leading(cluster):
        cluster.gang(volumes=naming("data"))
        await until(
            lambda: "bert-0 and bert-1 name PersistentVolumeClaim data, which" in reason(cluster)
        )
