"""Long loops let other tasks run."""

import asyncio

from linkwise.runtime.process.cooperative import cooperatively


async def test_another_task_runs_while_many_items_are_yielded():
    seen, ran_at = 0, []

    async def other():
        ran_at.append(seen)

    task = asyncio.create_task(other())
    async for _ in cooperatively(range(1200)):
        seen += 1
    await task

    assert ran_at == [500]


async def test_items_that_come_meanwhile_are_not_yielded():
    items = {0: "a", 1: "b"}
    found = []
    async for key in cooperatively(items):
        found.append(key)
        items[key + 10] = "later"

    assert found == [0, 1]
