import asyncio
import json
import sys
import time
from contextlib import asynccontextmanager

import msgspec
import pytest
from structlog.testing import capture_logs
from support.servers.fake_api import ended, held, status, text
from support.waiting import PATIENCE, until

from linkwise.runtime.kube.client import Kube
from linkwise.runtime.kube.decode import decode
from linkwise.runtime.kube.reflector import Reflector, WatchTimings

PATH = "/api/v1/namespaces/ns/configmaps"
FAST = WatchTimings(watch=200, read_timeout=100, initial_backoff=0.001, max_backoff=0.01)


class Thing(msgspec.Struct, frozen=True):
    data: dict[str, str] = {}


class Watched:
    """A reflector, and every state that it has reported."""

    def __init__(self, kube, **given):
        self.states = asyncio.Queue()
        self.changed = []
        read = msgspec.json.Decoder(Thing).decode
        given = {"timings": FAST, "on_change": self._note, "read": read, **given}
        self.reflector = Reflector(kube, PATH, **given)

    def _note(self, items, changed):
        self.changed.append({name for _, name in changed})
        self.states.put_nowait({name: thing.data for (_, name), thing in items.items()})

    async def state(self, *names):
        """Wait until exactly these are there."""
        async with asyncio.timeout(PATIENCE):
            while True:
                found = await self.states.get()
                if set(found) == set(names):
                    return found


@asynccontextmanager
async def watched(api, **given):
    async with Kube(api.url) as kube, asyncio.TaskGroup() as group:
        made = Watched(kube, **given)
        task = group.create_task(made.reflector.run())
        try:
            yield made
        finally:
            task.cancel()


async def test_objects_are_listed_and_then_watched(api):
    api.put("a", data={"k": "1"})

    async with watched(api) as watch:
        assert await watch.state("a") == {"a": {"k": "1"}}
        await api.watching()
        api.put("b", data={})
        await watch.state("a", "b")
        api.put("a", data={"k": "2"})
        assert await watch.state("a", "b") == {"a": {"k": "2"}, "b": {}}
        api.remove("a")
        await watch.state("b")

        assert watch.changed == [{"a"}, {"b"}, {"a"}, {"a"}]
        assert watch.reflector.synced.is_set()
        assert watch.reflector.lists == 1
        assert watch.reflector.error is None


async def test_empty_list_calls_on_change(api):
    async with watched(api) as watch:
        await watch.state()

        assert watch.reflector.synced.is_set()


async def test_watch_requests_bookmarks_a_timeout_and_only_selected_objects(api):
    async with watched(api, label_selector="a=b", field_selector="metadata.name=x") as watch:
        await watch.state()
        await api.watching()

    listed, watching = api.queries
    selected = {"labelSelector": "a=b", "fieldSelector": "metadata.name=x"}
    assert listed == {**selected, "limit": "500"}
    assert 200 <= int(watching.pop("timeoutSeconds")) <= 250
    assert watching == {
        **selected,
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": "1",
    }


async def test_long_lists_are_read_in_pages(api):
    names = [f"n{number}" for number in range(7)]
    for name in names:
        api.put(name)

    async with watched(api, timings=WatchTimings(page_size=3)) as watch:
        await watch.state(*names)

    assert [query.get("continue") for query in api.queries[:3]] == [None, "3", "6"]


async def test_pages_of_large_objects_are_read_again_with_fewer_of_them(api):
    names = [f"n{number:02}" for number in range(12)]
    for name in names[:4]:
        api.put(name, data={"k": "x" * 1000})
    for name in names[4:]:
        api.put(name)

    async with watched(api, timings=WatchTimings(page_size=8, page_bytes=3000)) as watch:
        await watch.state(*names)

    asked = [(query.get("continue", "0"), query["limit"]) for query in api.queries[:6]]
    # Eight are too long, so two are read; where they are short, there are more of them again.
    assert asked[:2] == [("0", "8"), ("0", "2")]
    assert [int(limit) for _, limit in asked[2:4]] == [1, 1]
    assert int(asked[5][1]) > 1


async def test_an_object_longer_than_a_page_may_be_is_read_by_itself(api):
    api.put("a", data={"k": "x" * 9000})
    api.put("b", data={})

    async with watched(api, timings=WatchTimings(page_size=2, page_bytes=3000)) as watch:
        await watch.state("a", "b")


async def test_whatever_reading_an_object_raises_the_others_are_read(api):
    def read(raw):
        thing = msgspec.json.decode(raw, type=Thing)
        if "bad" in thing.data:
            raise ValueError("a fault of ours")
        return thing

    api.put("a", data={"bad": ""})
    api.put("b")

    async with watched(api, read=read) as watch:
        await watch.state("b")
        await api.watching()
        api.put("b", data={"bad": ""})
        await until(lambda: ("ns", "b") in watch.reflector.unreadable)

        assert watch.reflector.items["ns", "b"].data == {}


async def test_nothing_is_kept_of_objects_without_an_item(api):
    def read(raw):
        thing = msgspec.json.decode(raw, type=Thing)
        return thing if thing.data else None

    api.put("a")
    api.put("b", data={"k": "1"})

    async with watched(api, read=read) as watch:
        await watch.state("b")
        await api.watching()
        api.put("b", data={})
        await watch.state()
        api.put("a", data={"k": "1"})
        assert await watch.state("a") == {"a": {"k": "1"}}


async def test_a_list_whose_pages_expire_is_read_in_one_answer(api):
    names = [f"n{number}" for number in range(7)]
    for name in names:
        api.put(name)

    async def first_page(_request):
        api.faults["list"].append(status(410, "Expired"))

    api.faults["list"].append(first_page)
    async with watched(api, timings=WatchTimings(page_size=3)) as watch:
        await watch.state(*names)

    assert "limit" not in api.queries[2]


@pytest.mark.parametrize(
    "fault",
    [
        status(410, "Expired"),
        status(504, "Timeout"),
        status(400, "BadRequest"),
        text(200, "<html>\n"),
        text(200, f'{{"type": "ADDED", "object": {"[" * 3000 + "]" * 3000}}}\n'),
    ],
    ids=["410", "version too large", "bad request", "not json", "nested too deep"],
)
async def test_expired_version_is_listed_again(api, fault):
    api.faults["watch"].append(fault)

    async with watched(api) as watch:
        await watch.state()
        await api.watching()
        await watch.state()

        assert watch.reflector.lists == 2


@pytest.mark.parametrize("code", [410, 400])
async def test_error_event_causes_a_list(api, code):
    async with watched(api) as watch:
        await watch.state()
        await api.watching()
        api.put("unseen")
        await watch.state("unseen")
        api.error(code)
        api.cut()
        await watch.state("unseen")

        assert watch.reflector.lists == 2


@pytest.mark.parametrize("code", [429, 500, 503])
async def test_watch_resumes_at_its_version_after_overload(api, code):
    api.faults["watch"].extend([status(code), status(code)])

    async with watched(api) as watch:
        await watch.state()
        await api.watching()
        api.put("a")
        await watch.state("a")

        assert watch.reflector.lists == 1


async def test_watch_resumes_at_its_last_version(api):
    async with watched(api) as watch:
        await watch.state()
        await api.watching()
        api.put("a")
        await watch.state("a")
        api.cut(last=b'{"type":"ADDED","object":{"meta')
        api.put("b")
        await watch.state("a", "b")

        assert watch.reflector.lists == 1
        assert api.queries[-1]["resourceVersion"] == "2"


async def test_bookmarks_advance_the_version(api):
    async with watched(api) as watch:
        await watch.state()
        await api.watching()
        api.bookmark()
        api.put("a")
        await watch.state("a")
        api.remove("a")
        await watch.state()
        api.bookmark()
        api.cut()
        await until(lambda: len(api.queries) == 3)

        assert api.queries[-1]["resourceVersion"] == "5"
        assert watch.reflector.lists == 1


async def test_an_event_that_comes_in_two_pieces_is_put_together(api):
    async with watched(api) as watch:
        await watch.state()
        await api.watching()
        api.send(b'{"type":"ADDED","object":{"metadata":{"name":"a",')
        await asyncio.sleep(0.02)
        api.send(b'"namespace":"ns","resourceVersion":"9"}}}\n')
        await watch.state("a")

        assert watch.reflector.lists == 1


async def test_event_resets_the_backoff(api):
    api.faults["watch"].extend([status(503)] * 4)
    timings = WatchTimings(watch=200, initial_backoff=0.001, max_backoff=10)

    async with watched(api, timings=timings) as watch:
        await watch.state()
        await api.watching()
        assert watch.reflector._delay >= 0.016
        api.put("a")
        await watch.state("a")
        await until(lambda: watch.reflector._delay == timings.initial_backoff)


async def test_watches_that_end_immediately_are_retried_with_backoff(api):
    api.faults["watch"].extend([ended] * 1000)
    timings = WatchTimings(watch=200, initial_backoff=0.001, max_backoff=10)

    async with watched(api, timings=timings) as watch:
        await watch.state()
        await until(lambda: len(api.queries) >= 6)
        # Doubled after each watch but the present one.
        assert watch.reflector._delay >= 16 * timings.initial_backoff


async def test_watch_without_bytes_is_restarted_and_items_stay(api):
    api.put("a")
    never = asyncio.Event()
    api.faults["watch"].extend([held(never, headers=True), held(never, headers=False)])
    timings = WatchTimings(watch=0.01, read_timeout=0.05, initial_backoff=0.001, max_backoff=0.01)

    async with watched(api, timings=timings) as watch:
        await watch.state("a")
        api.put("b")
        await watch.state("a", "b")

        assert watch.reflector.lists == 1
        never.set()


async def test_watch_continues_after_a_restart_of_the_api_server(api):
    async with watched(api) as watch:
        await watch.state()
        await api.watching()
        await api.stop()
        api.put("a")
        await until(lambda: watch.reflector.error is not None)
        assert dict(watch.reflector.items) == {}
        await api.start()
        await watch.state("a")

        await until(lambda: watch.reflector.error is None)
        assert watch.reflector.lists == 1


async def test_failed_list_keeps_the_items_and_sets_error(api):
    api.put("a")

    async with watched(api) as watch:
        await watch.state("a")
        await api.watching()
        api.faults["list"].extend([status(403, "Forbidden", "not you")] * 3)
        api.put("b")
        api.error(410)
        api.cut()
        await until(lambda: watch.reflector.error == "not you (status 403)")
        assert ("ns", "a") in watch.reflector.items
        await watch.state("a", "b")
        await until(lambda: watch.reflector.error is None)


async def test_before_the_first_list_nothing_is_synced(api):
    api.faults["list"].append(status(500))

    async with watched(api) as watch:
        await until(lambda: watch.reflector.error is not None)

        assert not watch.reflector.synced.is_set()
        assert watch.reflector.age() is None
        before = time.monotonic()
        await watch.state()
        age = watch.reflector.age()
        assert 0 <= age <= time.monotonic() - before


async def test_an_object_that_cannot_be_read_keeps_its_last_good_state(api):
    api.put("a", data={"k": "1"})
    api.put("bad", data=7)

    async with watched(api) as watch:
        assert await watch.state("a") == {"a": {"k": "1"}}
        await api.watching()
        api.put("a", data="no")
        assert await watch.state("a") == {"a": {"k": "1"}}
        assert set(watch.reflector.unreadable) == {("ns", "a"), ("ns", "bad")}

        api.remove("bad")
        await until(lambda: set(watch.reflector.unreadable) == {("ns", "a")})
        api.error(410)
        api.cut()
        await watch.state("a")
        while watch.reflector.lists < 2:
            await watch.state("a")
        assert watch.reflector.items[("ns", "a")].data == {"k": "1"}
        assert set(watch.reflector.unreadable) == {("ns", "a")}

        await api.watching()
        api.put("a", data={"k": "2"})
        assert await watch.state("a") == {"a": {"k": "2"}}
        assert watch.reflector.unreadable == {}


async def test_log_has_the_problem_of_an_object_in_one_line(api):
    def read(_raw):
        raise ValueError("no number: " + "x" * 1000)

    api.put("a")

    with capture_logs() as logs:
        async with watched(api, read=read) as watch:
            await watch.state()

    (line,) = (one for one in logs if one["event"] == "Could not read object")
    assert line["object"] == "ns/a"
    assert line["err"].startswith("no number: x")
    assert len(line["err"]) == 200


@pytest.mark.parametrize("levels", [*range(890, 1000, 2), 9980])
async def test_an_object_of_any_depth_is_listed_and_watched_as_others_are(api, levels):
    fields = {}
    for _ in range(levels):
        fields = {"f:a": fields}
    sys.setrecursionlimit(50_000)
    try:
        deep = json.dumps(fields)
    finally:
        sys.setrecursionlimit(1000)
    metadata = {"namespace": "ns", "resourceVersion": "2"}

    def listed(name):
        about = json.dumps({**metadata, "name": name})
        return f'{{"metadata": {about}, "managed": {deep}, "data": {{"k": "1"}}}}'

    version = '{"resourceVersion": "1"}'
    api.faults["list"].append(text(200, f'{{"metadata": {version}, "items": [{listed("a")}]}}'))
    api.faults["watch"].append(text(200, f'{{"type": "ADDED", "object": {listed("b")}}}\n'))

    things = msgspec.json.Decoder(Thing)
    async with watched(api, read=lambda raw: decode(raw, things)) as watch:
        assert await watch.state("a", "b") == {"a": {"k": "1"}, "b": {"k": "1"}}
        assert watch.reflector.lists == 1


async def test_an_object_that_is_nested_too_deep_to_be_read_hides_no_other(api):
    def read(raw):
        return read(raw) if b"deep" in bytes(raw) else Thing()

    api.put("a")
    api.put("deep")

    async with watched(api, read=read) as watch:
        await watch.state("a")
        assert set(watch.reflector.unreadable) == {("ns", "deep")}


async def test_items_are_read_only(api):
    async with watched(api) as watch:
        await watch.state()

        with pytest.raises(TypeError):
            watch.reflector.items[("", "x")] = Thing()


async def test_exception_of_on_change_ends_run(api):
    def bug(_items, _changed):
        raise OSError("mine")

    with pytest.raises(ExceptionGroup) as raised:
        async with watched(api, on_change=bug), asyncio.timeout(PATIENCE):
            await asyncio.Event().wait()

    assert raised.group_contains(OSError, match="mine")


async def test_a_cancelled_watch_closes_its_connection(api):
    async with watched(api) as watch:
        await watch.state()
        await api.watching()

    await until(lambda: api.bookmark() or not api.watches)
