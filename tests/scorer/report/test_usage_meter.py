from prometheus_client import CollectorRegistry
from support.servers.leader_harness import Cluster, leading
from support.waiting import until

from linkwise.cluster import keys


def value(registry, name, **labels):
    return registry.get_sample_value(name, labels)


async def test_a_leader_counts_what_is_free_what_is_held_and_what_waits():
    registry = CollectorRegistry()
    async with Cluster() as cluster:
        cluster.node(gpus=8)
        cluster.gang("bert", workers=2, gpus=2)
        cluster.gang("large", workers=2, gpus=8)
        held = {"pod_namespace": "team", "resource": keys.GPU_WHOLE, "share": "whole"}
        fours = {"pool": "", "model": "", "size": "4"}
        async with leading(cluster, registry=registry):
            await until(lambda: value(registry, "linkwise_gpu_seconds_total", **held))
            await until(lambda: value(registry, "linkwise_free_gpu_sets", **fours) == 1)
            await until(lambda: value(registry, "linkwise_waiting_units", reason="capacity") == 1)
            await until(
                lambda: value(registry, "linkwise_waiting_seconds_total", reason="capacity")
            )
        counted = value(registry, "linkwise_gpu_seconds_total", **held)

        assert value(registry, "linkwise_free_gpu_sets", **fours) is None
        assert value(registry, "linkwise_waiting_units", reason="capacity") == 0
        async with leading(cluster, term=8, registry=CollectorRegistry()):
            pass
        assert value(registry, "linkwise_gpu_seconds_total", **held) == counted


async def test_a_gang_without_all_its_pods_waits_as_incomplete():
    registry = CollectorRegistry()
    async with Cluster() as cluster:
        cluster.node(gpus=8)
        cluster.gang("bert", workers=1, gpus=2, size=3)
        async with leading(cluster, registry=registry):
            await until(lambda: value(registry, "linkwise_waiting_units", reason="incomplete") == 1)
