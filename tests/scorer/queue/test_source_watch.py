"""Watches of the collections of owners and PodGroups."""

import asyncio
from contextlib import asynccontextmanager

from support.servers.leader_harness import Cluster
from support.waiting import until

from linkwise.runtime.kube.client import Kube
from scorer.queue import source_watch
from scorer.queue.source_watch import SourceName, SourceVersion, SourceWatch

GROUPS = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/team/podgroups"
NAME = SourceName("scheduling.x-k8s.io", "podgroups", "team", "bert")


@asynccontextmanager
async def watching(cluster):
    seen = []
    async with Kube(cluster.url) as kube:
        watch = SourceWatch(kube, lambda name, version: seen.append((name, version)))
        running = asyncio.create_task(watch.run())
        yield watch, seen
        running.cancel()


def put(cluster, generation, uid="u"):
    metadata = {"uid": uid, "generation": generation}
    cluster.put(f"{GROUPS}/bert", {"metadata": metadata, "spec": {}})


async def test_each_change_and_the_deletion_of_an_object_are_seen():
    async with Cluster() as cluster, watching(cluster) as (watch, seen):
        put(cluster, 1)
        watch.want(f"{GROUPS}/other")
        await until(lambda: seen == [(NAME, SourceVersion("u", "1"))])
        put(cluster, 2)
        await until(lambda: seen[1:] == [(NAME, SourceVersion("u", "2"))])
        cluster.remove(f"{GROUPS}/bert")
        await until(lambda: seen[2:] == [(NAME, None)])


async def test_a_collection_that_may_not_be_watched_is_asked_for_again(monkeypatch):
    monkeypatch.setattr(source_watch, "_INTERVAL", 0.01)
    async with Cluster() as cluster, watching(cluster) as (watch, seen):
        put(cluster, 1)
        collection = "/apis/scheduling.x-k8s.io/v1alpha1/podgroups"
        cluster.outcomes["GET", collection] += [(403, "no"), (404, "no such API")]
        watch.want(f"{GROUPS}/bert")
        await until(lambda: seen == [(NAME, SourceVersion("u", "1"))])


async def test_of_many_versions_few_are_tried(monkeypatch):
    monkeypatch.setattr(source_watch, "_INTERVAL", 0.01)
    async with Cluster() as cluster, watching(cluster) as (watch, _):
        paths = [f"/apis/x.io/v{i}/namespaces/team/jobs/a" for i in range(100)]
        for path in paths:
            cluster.outcomes["GET", f"/apis/x.io/v{paths.index(path)}/jobs"] += [(404, "no")] * 3
            watch.want(path)
        tried = [cluster.outcomes["GET", f"/apis/x.io/v{i}/jobs"] for i in range(100)]
        await until(lambda: not any(tried[:4]))

    assert all(len(left) == 3 for left in tried[4:])
