"""Keep a copy of a collection of the Kubernetes API: list, then watch.

1. List, in pages of as many objects as memory allows: the whole state at one resourceVersion.
2. Watch from that version: each event is one change; bookmarks advance the version without one.
3. When a watch ends, start another one at the last version; if the API server no longer has that
   version, list again. The copy stays in use meanwhile.
"""

import asyncio
import random
import time
from collections.abc import Callable, Mapping, Set
from contextlib import aclosing
from dataclasses import dataclass
from types import MappingProxyType
from typing import Generic, TypeVar

import msgspec
import structlog
from msgspec import Raw, Struct

from linkwise.runtime.kube.client import Kube
from linkwise.runtime.kube.decode import decode
from linkwise.runtime.kube.errors import (
    UNDECODABLE,
    ApiError,
    KubeError,
    TooLong,
    Unreachable,
    Unreadable,
    api_error,
)
from linkwise.runtime.kube.objects import Key, Object
from linkwise.runtime.kube.paging import Page, Params, pages

T = TypeVar("T")

_REFUSED, _GONE = frozenset({403, 404}), 410  # 404: the collection is not served.
_PASSING = frozenset({429, 500, 502, 503})
"""Statuses that do not concern the version: the API server is overloaded or starting."""

_MAX_LENGTH = 200
"""Longest text of an error, which may quote an object [characters]."""

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


class _Head(Object, frozen=True):
    code: int = 500
    """Of the Status in an ERROR event."""


class _Event(Struct, frozen=True):
    type: str
    object: Raw


_heads = msgspec.json.Decoder(_Head)
_events = msgspec.json.Decoder(_Event)
_DEFAULT = WatchTimings()


class Reflector(Generic[T]):
    """A copy of a collection."""

    def __init__(  # noqa: PLR0913 - all are properties of one watch.
        self,
        kube: Kube,
        path: str,
        read: Callable[[Raw], T | None],
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        on_change: Callable[[Mapping[Key, T], Set[Key]], None] = lambda _items, _changed: None,
        on_deleted: Callable[[Raw], None] = lambda _object: None,
        on_forbidden: Callable[[], None] = lambda: None,
        timings: WatchTimings = _DEFAULT,
    ) -> None:
        """Create an empty copy.

        Args:
            kube: Client of the API server.
            path: The collection, such as `/api/v1/namespaces`.
            read: Returns the item of an object, from its JSON; None: nothing of the object is kept,
                not even its name. If it raises, the object keeps the item that it had.
            label_selector: Selects objects; None: all.
            field_selector: Selects objects; None: all.
            on_change: Called after each change and each list, with all items and the keys of those
                that were added, changed or deleted; an exception that it raises ends `run`.
            on_deleted: Called before `on_change` with the last state of an object whose deletion
                was watched.
            on_forbidden: Called once if, before the first list, the right to read is missing or the
                collection is not served; it is tried again. Later, the last items stay in use.
            timings: Durations, and sizes of pages.
        """
        self._kube, self._path, self._read = kube, path, read
        selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
        self._selectors = {name: text for name, text in selectors.items() if text}
        self._on_change, self._on_deleted = on_change, on_deleted
        self._on_forbidden, self._timings = on_forbidden, timings
        self._items: dict[Key, T] = {}
        self._version = ""
        self._last_event_at = float("-inf")
        self._delay = timings.initial_backoff
        self.synced = asyncio.Event()
        """Set after the first complete list."""
        self.answered = asyncio.Event()
        """Set after the first complete list, or once the right is missing or it is not served."""
        self.is_forbidden = False
        """The right was missing, or the collection not served, since it was last listed."""
        self.lists = 0
        """Number of complete lists."""
        self.error: str | None = None
        """Why there is no watch now; None while there is one."""
        self.unreadable: dict[Key, str] = {}
        """Objects that could not be read, and why; their last items stay in use."""

    @property
    def items(self) -> Mapping[Key, T]:
        """All items: a live, read-only view."""
        return MappingProxyType(self._items)

    def age(self) -> float | None:
        """Return the time since the last event or list [s]; None before the first list."""
        return time.monotonic() - self._last_event_at if self.synced.is_set() else None

    def replace(self, key: Key, item: T) -> None:
        """Replace the item of an unchanged object, and call `on_change`."""
        self._items[key] = item
        self._on_change(self.items, {key})

    async def run(self) -> None:
        """Keep the items up to date until cancelled."""
        while True:
            started = time.monotonic()
            try:
                if not self._version:
                    await self._list()
                await self._watch()
            except KubeError as error:
                self._lost(error)
            except UNDECODABLE as error:
                self._lost(Unreadable(f"this is no event and no object: {error}"))
            # A watch of that duration is a success, even without events.
            if time.monotonic() - started > self._timings.watch / 2:
                self._delay = self._timings.initial_backoff
            await asyncio.sleep(self._delay * random.uniform(0.5, 1))  # noqa: S311
            self._delay = min(self._delay * 2, self._timings.max_backoff)

    def _lost(self, error: KubeError) -> None:
        self.error = str(error)
        status = error.status if isinstance(error, ApiError) else None
        if status not in _PASSING and not isinstance(error, Unreachable):
            self._version = ""
        was_forbidden = status in _REFUSED and self.is_forbidden
        if status != _GONE and not was_forbidden:
            _log.warning("Lost watch", resource=self._path, err=str(error))
        if status in _REFUSED and not was_forbidden:
            self.is_forbidden = True
            self.answered.set()
            if not self.synced.is_set():
                self._on_forbidden()

    async def _list(self) -> None:
        try:
            pages = await self._pages(self._timings.page_size)
        except ApiError as error:
            if error.status != _GONE:
                raise
            # The continue token expired before the last page: read all in one page.
            pages = await self._pages(None)
        before = self._items
        self._items, self.unreadable, self._version = pages
        self._last_event_at = time.monotonic()
        self.lists += 1
        self.is_forbidden = False
        self.synced.set()
        self.answered.set()
        _log.info("Listed objects", resource=self._path, objects=len(self._items))
        self._on_change(self.items, before.keys() | self._items.keys())

    async def _pages(self, limit: int | None) -> tuple[dict[Key, T], dict[Key, str], str]:
        """Return all items, the errors of objects that cannot be read, and the version of the list.

        Args:
            limit: Objects in the first page, which is read again with fewer if it is too long;
                None: all objects in one page of any size.
        """
        items: dict[Key, T] = {}
        unreadable: dict[Key, str] = {}
        version = ""

        async def read(params: Params) -> Page[Raw]:
            nonlocal limit
            while True:
                try:
                    return await self._page(params, limit)
                except TooLong:
                    limit = max(1, (limit or 1) // 4)

        async for page in pages(read, self._selectors):
            size, version = 0, page.metadata.resource_version
            for raw in page.items or ():
                size += memoryview(raw).nbytes
                self._put(items, unreadable, decode(raw, _heads).metadata.key, raw)
            if limit is not None:
                # Aim at half the limit, since the next objects may be larger.
                fits = self._timings.page_bytes // 2 * len(page.items or ()) // max(size, 1)
                limit = max(1, min(fits, 2 * limit, self._timings.page_size))
        return items, unreadable, version

    async def _page(self, params: Params, limit: int | None) -> Page[Raw]:
        if limit is None:
            return await self._kube.get(self._path, Page[Raw], params=params)
        # A page of one object has no limit: there is no smaller page.
        max_bytes = self._timings.page_bytes if limit > 1 else None
        params = {**params, "limit": str(limit)}
        return await self._kube.get(self._path, Page[Raw], params=params, max_bytes=max_bytes)

    async def _watch(self) -> None:
        duration = self._timings.watch * random.uniform(1, 1.25)  # noqa: S311
        params = {
            **self._selectors,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(max(1, round(duration))),
        }
        read_timeout = duration + self._timings.read_timeout
        async with aclosing(
            self._kube.stream(self._path, params, read_timeout=read_timeout)
        ) as stream:
            async for lines in stream:
                self._last_event_at = time.monotonic()
                self.error = None
                self._take(lines)
        self._last_event_at = time.monotonic()

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
        """Apply an event; return the key of a changed object."""
        head = decode(event.object, _heads)
        if event.type == "ERROR":
            raise api_error(head.code, bytes(event.object))
        self._version = head.metadata.resource_version
        key = head.metadata.key
        match event.type:
            case "ADDED" | "MODIFIED":
                self._put(self._items, self.unreadable, key, event.object)
            case "DELETED":
                self._on_deleted(event.object)
                self._items.pop(key, None)
                self.unreadable.pop(key, None)
            case _:
                return None
        return key

    def _put(self, items: dict[Key, T], unreadable: dict[Key, str], key: Key, raw: Raw) -> None:
        try:
            item = self._read(raw)
            if item is None:
                items.pop(key, None)
            else:
                items[key] = item
            unreadable.pop(key, None)
        except Exception as error:  # noqa: BLE001 - one object must not end the watch of all.
            if key in self._items:
                items[key] = self._items[key]
            unreadable[key] = why = str(error)[:_MAX_LENGTH]
            name = "/".join(key)
            _log.warning("Could not read object", resource=self._path, object=name, err=why)
