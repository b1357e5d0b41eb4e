"""A collection of the Kubernetes API, kept as it is there: list, then watch, for ever.

1. List, in pages of as many objects as memory allows, for the whole state at one resourceVersion.
2. Watch from it: each event is one change; bookmarks move the version on where nothing changes.
3. A watch that ends is begun anew at the last version. Where the API server knows that version no
   longer, list again. What is known stays in use all the while.
"""

import asyncio
import random
import time
from collections.abc import Callable, Mapping, Set
from contextlib import aclosing
from dataclasses import dataclass
from types import MappingProxyType
from typing import Generic, TypeAlias, TypeVar

import msgspec
import structlog
from msgspec import Raw, Struct

from runtime.kube.client import Kube
from runtime.kube.decode import decode
from runtime.kube.errors import (
    UNDECODABLE,
    ApiError,
    KubeError,
    TooLong,
    Unreachable,
    Unreadable,
    api_error,
)

T = TypeVar("T")
Key: TypeAlias = tuple[str, str]
"""Namespace, which is empty for what has none, and name."""

_GONE = 410
_PASSING = frozenset({429, 500, 502, 503})
"""Answers that say nothing about the version: the API server is overloaded or starting."""

_LONGEST = 200
"""Of an error's text, which may quote what somebody wrote [characters]."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class WatchTimings:
    """Durations [s], and sizes of pages."""

    watch: float = 60
    """Duration of a watch, plus up to a quarter, so that watches do not end together. It is short
    because a broken connection is detected after this time and `read_timeout`; a new watch costs
    one request."""
    read_timeout: float = 10
    """Time without a byte, beyond the duration of the watch, after which a connection is broken."""
    initial_backoff: float = 0.1
    """Pause before the first attempt after a watch ended; doubled with each failure."""
    max_backoff: float = 30
    page_size: int = 500
    """Most objects in a page of a list."""
    page_bytes: int = 16 << 20
    """Most bytes in a page: with large objects it has fewer of them."""


class _Version(Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _List(Struct, frozen=True):
    metadata: _Version = _Version()
    items: list[Raw] | None = None


class _Metadata(Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""

    @property
    def key(self) -> Key:
        return self.namespace, self.name


class _Head(Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    code: int = 500
    """Of a Status, which stands in an ERROR event."""


class _Event(Struct, frozen=True):
    type: str
    object: Raw


_heads = msgspec.json.Decoder(_Head)
_events = msgspec.json.Decoder(_Event)
_DEFAULT = WatchTimings()


class Reflector(Generic[T]):
    """What a collection holds, as far as its watch has told."""

    def __init__(  # noqa: PLR0913 - what is kept, and how.
        self,
        kube: Kube,
        path: str,
        read: Callable[[Raw], T],
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        on_change: Callable[[Mapping[Key, T], Set[Key]], None] = lambda _items, _changed: None,
        timings: WatchTimings = _DEFAULT,
    ) -> None:
        """Say what to keep.

        Args:
            kube: Whom to ask.
            path: The collection, such as `/api/v1/namespaces`.
            read: Returns what is kept of an object, from its JSON; where it raises, what was known
                of the object stays.
            label_selector: Where not all is wanted.
            field_selector: Where not all is wanted.
            on_change: Called after each change, and after every list, with all items and the keys
                of those that changed, came or went; an exception that it raises ends `run`.
            timings: Durations, and sizes of pages.
        """
        self._kube = kube
        self._path = path
        self._read = read
        selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
        self._selectors = {name: text for name, text in selectors.items() if text}
        self._on_change = on_change
        self._timings = timings
        self._items: dict[Key, T] = {}
        self._version = ""
        self._heard_at = float("-inf")
        self._delay = timings.initial_backoff
        self.synced = asyncio.Event()
        """Set once a list was complete."""
        self.lists = 0
        """Complete ones so far."""
        self.error: str | None = None
        """Why there is no watch now; None while there is one."""
        self.unreadable: dict[Key, str] = {}
        """Objects that are not what was expected, and why; what they were before stays in use."""

    @property
    def items(self) -> Mapping[Key, T]:
        """All objects: a view that changes with them, and cannot be written to."""
        return MappingProxyType(self._items)

    def last_event_age(self, now: float) -> float:
        """Return how long nothing was heard [s].

        Args:
            now: `time.monotonic()`.
        """
        return now - self._heard_at

    def replace(self, key: Key, item: T) -> None:
        """Keep something else of an object that has not changed, and say so."""
        self._items[key] = item
        self._on_change(self.items, {key})

    async def run(self) -> None:
        """Keep the items up to date until cancelled."""
        while True:
            began = time.monotonic()
            try:
                if not self._version:
                    await self._list()
                await self._watch()
            except KubeError as error:
                self._lost(error)
            except UNDECODABLE as error:
                self._lost(Unreadable(f"this is no event and no object: {error}"))
            # A watch that lasted is a success, whether or not there was anything to tell.
            if time.monotonic() - began > self._timings.watch / 2:
                self._delay = self._timings.initial_backoff
            await asyncio.sleep(self._delay * random.uniform(0.5, 1))  # noqa: S311
            self._delay = min(self._delay * 2, self._timings.max_backoff)

    def _lost(self, error: KubeError) -> None:
        self.error = str(error)
        status = error.status if isinstance(error, ApiError) else None
        if status not in _PASSING and not isinstance(error, Unreachable):
            self._version = ""
        if status != _GONE:
            _log.warning("Lost watch", resource=self._path, err=str(error))

    async def _list(self) -> None:
        try:
            found = await self._pages(self._timings.page_size)
        except ApiError as error:
            if error.status != _GONE:
                raise
            # A list that takes longer than its pages are kept: all of it in one answer, then.
            found = await self._pages(None)
        before = self._items
        self._items, self.unreadable, self._version = found
        self._heard_at = time.monotonic()
        self.lists += 1
        self.synced.set()
        _log.info("Listed objects", resource=self._path, objects=len(self._items))
        self._on_change(self.items, before.keys() | self._items.keys())

    async def _pages(self, limit: int | None) -> tuple[dict[Key, T], dict[Key, str], str]:
        """Return all objects, why some cannot be read, and the version of the list.

        Args:
            limit: Objects in the first answer, which is read again with fewer where it is too long;
                None: all in one answer, however long it is.
        """
        items: dict[Key, T] = {}
        unreadable: dict[Key, str] = {}
        params = dict(self._selectors)
        while True:
            try:
                part = await self._page(params, limit)
            except TooLong:
                limit = max(1, (limit or 1) // 4)
                continue
            size = 0
            for raw in part.items or ():
                size += memoryview(raw).nbytes
                self._put(items, unreadable, decode(raw, _heads).metadata.key, raw)
            if not part.metadata.continue_:
                return items, unreadable, part.metadata.resource_version
            params["continue"] = part.metadata.continue_
            if limit is not None:
                # Half as long as it may be, since the next objects may be larger than these.
                fits = self._timings.page_bytes // 2 * len(part.items or ()) // max(size, 1)
                limit = max(1, min(fits, 2 * limit, self._timings.page_size))

    async def _page(self, params: dict[str, str], limit: int | None) -> _List:
        if limit is None:
            return await self._kube.get(self._path, _List, params=params)
        # One object is read whatever its size: there is no smaller page.
        most = self._timings.page_bytes if limit > 1 else None
        params = {**params, "limit": str(limit)}
        return await self._kube.get(self._path, _List, params=params, most=most)

    async def _watch(self) -> None:
        lasts = self._timings.watch * random.uniform(1, 1.25)  # noqa: S311
        params = {
            **self._selectors,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(max(1, round(lasts))),
        }
        read_timeout = lasts + self._timings.read_timeout
        async with aclosing(
            self._kube.stream(self._path, params, read_timeout=read_timeout)
        ) as stream:
            async for lines in stream:
                self._heard_at = time.monotonic()
                self.error = None
                self._take(lines)
        self._heard_at = time.monotonic()

    def _take(self, lines: list[bytes]) -> None:
        changed: set[Key] = set()
        try:
            for line in lines:
                if key := self._apply(decode(line, _events)):
                    changed.add(key)
                self._delay = self._timings.initial_backoff
        finally:
            if changed:
                self._on_change(self.items, changed)

    def _apply(self, event: _Event) -> Key | None:
        """Return what changed, if anything did."""
        head = decode(event.object, _heads)
        if event.type == "ERROR":
            raise api_error(head.code, bytes(event.object))
        self._version = head.metadata.resource_version
        key = head.metadata.key
        match event.type:
            case "ADDED" | "MODIFIED":
                self._put(self._items, self.unreadable, key, event.object)
            case "DELETED":
                self._items.pop(key, None)
                self.unreadable.pop(key, None)
            case _:
                return None
        return key

    def _put(self, items: dict[Key, T], unreadable: dict[Key, str], key: Key, raw: Raw) -> None:
        try:
            items[key] = self._read(raw)
            unreadable.pop(key, None)
        except Exception as error:  # noqa: BLE001 - one object must not end the watch of all.
            if key in self._items:
                items[key] = self._items[key]
            unreadable[key] = why = str(error)[:_LONGEST]
            name = "/".join(key)
            _log.warning("Could not read object", resource=self._path, object=name, err=why)
