import asyncio

import pytest
from support import virtual_time

from linkwise.runtime.process import work_queue
from linkwise.runtime.process.fair_schedule import URGENT, Limits
from linkwise.runtime.process.work_queue import Retry, WorkQueue


@pytest.fixture(autouse=True)
def _without_jitter(monkeypatch):
    monkeypatch.setattr(work_queue, "_JITTER", (1, 1))


def now():
    return asyncio.get_running_loop().time()


class Works:
    """Processes keys, each in a second; a key fails as often as `failures` says."""

    def __init__(self, **options):
        self.started, self.errors, self.failures = [], [], {}
        self.queue = WorkQueue(
            self._process,
            **{
                "retry": Retry(10, 25),
                "on_error": lambda key, _, delay: self.errors.append((key, delay)),
                **options,
            },
        )

    async def _process(self, key):
        self.started.append((now(), key))
        await asyncio.sleep(1)
        if self.failures.get(key):
            self.failures[key] -= 1
            raise ValueError(key)


def ran(scenario, seconds=100, **options):
    """Run a queue while a scenario adds keys."""

    async def main():
        works = Works(**options)
        task = asyncio.create_task(works.queue.run())
        await scenario(works)
        await asyncio.sleep(seconds)
        task.cancel()
        await asyncio.wait((task,))
        return works

    return virtual_time.run(main())


def test_changes_while_a_key_is_processed_cost_one_more_turn():
    async def scenario(works):
        works.queue.add("a")
        await asyncio.sleep(0.5)
        for _ in range(3):
            works.queue.add("a")

    assert ran(scenario).started == [(0.0, "a"), (1.0, "a")]


def test_a_key_is_processed_after_its_delay_or_earlier_if_it_is_added_again():
    async def scenario(works):
        works.queue.add("a", delay=10)
        works.queue.add("b", delay=10)
        await asyncio.sleep(2)
        works.queue.add("b", delay=3)

    assert ran(scenario).started == [(5.0, "b"), (10.0, "a")]


def test_a_failed_key_backs_off_and_delays_no_other():
    async def scenario(works):
        works.failures = {"a": 4}
        works.queue.add("a")
        works.queue.add("b")
        await asyncio.sleep(3)
        # Does not end the backoff.
        works.queue.add("a")

    works = ran(scenario)
    assert works.errors == [("a", 10), ("a", 20), ("a", 25), ("a", 25)]
    assert works.started == [
        (0.0, "a"),
        (1.0, "b"),
        (11.0, "a"),
        (32.0, "a"),
        (58.0, "a"),
        (84.0, "a"),
    ]


def test_an_urgent_key_does_without_its_backoff():
    async def scenario(works):
        works.failures = {"a": 1}
        works.queue.add("a")
        await asyncio.sleep(3)
        works.queue.add("a", rank=URGENT)

    assert ran(scenario).started == [(0.0, "a"), (3.0, "a")]


def test_a_key_that_succeeded_starts_with_the_first_delay_again():
    async def scenario(works):
        works.failures = {"a": 1}
        works.queue.add("a")
        await asyncio.sleep(20)
        works.failures = {"a": 1}
        works.queue.add("a")

    assert ran(scenario).errors == [("a", 10), ("a", 10)]


def test_a_key_that_fails_too_often_is_given_up():
    async def scenario(works):
        works.failures = {"a": 5}
        works.queue.add("a")

    works = ran(scenario, retry=Retry(10, 25, attempts=3))
    assert works.errors == [("a", 10), ("a", 20), ("a", None)]
    assert works.queue.size("") == 0


def test_a_group_that_rests_is_processed_later():
    async def scenario(works):
        works.queue.add("a")
        works.queue.add("b")
        works.queue.rest("a", 7)

    assert ran(scenario, group=str).started == [(0.0, "b"), (7.0, "a")]


def test_some_keys_of_a_group_are_processed_at_the_same_time():
    async def scenario(works):
        for key in ("a1", "a2", "a3", "b1"):
            works.queue.add(key)

    works = ran(scenario, group=lambda key: key[0], limits=Limits(4, 2))
    assert works.started == [(0.0, "a1"), (0.0, "b1"), (0.0, "a2"), (1.0, "a3")]


def test_delays_of_keys_that_fail_together_differ(monkeypatch):
    monkeypatch.setattr(work_queue, "_JITTER", (0.8, 1.2))
    delays = {Retry(10, 60).delay(1) for _ in range(20)}
    assert len(delays) > 1
    assert all(8 <= delay <= 12 for delay in delays)
    assert 48 <= Retry(10, 60).delay(10_000) <= 72
