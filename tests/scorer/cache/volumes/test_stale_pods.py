import asyncio
from contextlib import asynccontextmanager

from scorer.cache.volumes.stale_pods import StalePods


@asynccontextmanager
async def running(update):
    pods = StalePods(update)
    task = asyncio.create_task(pods.run())
    try:
        yield pods
    finally:
        task.cancel()
        await asyncio.wait((task,))


async def test_each_pod_is_updated_once():
    updated = []
    async with running(updated.append) as pods:
        pods.add({("team", "a")})
        pods.add({("team", "a"), ("team", "b")})
        assert not pods.idle.is_set()
        await pods.idle.wait()
    assert sorted(updated) == [("team", "a"), ("team", "b")]


async def test_other_tasks_run_while_many_pods_are_updated():
    updated = []
    async with running(updated.append) as pods:
        pods.add({("team", str(i)) for i in range(2000)})
        seen = set()
        while not pods.idle.is_set():
            await asyncio.sleep(0)
            seen.add(len(updated))
        assert len(updated) == 2000
    assert len(seen) > 3


async def test_a_pod_that_changes_meanwhile_is_updated_again():
    updated = []

    def update(key):
        updated.append(key)
        if len(updated) == 1:
            pods.add({key})

    async with running(update) as pods:
        pods.add({("team", "a")})
        await pods.idle.wait()
    assert updated == [("team", "a")] * 2
