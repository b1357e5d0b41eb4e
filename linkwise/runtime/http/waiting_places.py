"""Limit the requests of a server whose routes wait for something, by address.

Where no place is free, the request that has waited longest of the address with the most places
makes room, so that one client cannot take the places of all others.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Coroutine
from dataclasses import dataclass

from linkwise.runtime.http.limits import Limits
from linkwise.runtime.http.types import HttpResponse, error_response, retry_later

_FULL = retry_later("too many requests are being answered: send it again")


class WaitingPlaces:
    """The places of a server, and which address has them."""

    def __init__(self, limits: Limits) -> None:
        """Start with free places; an event loop must run."""
        self._loop = asyncio.get_running_loop()
        self._limits = limits
        self._taken = 0
        self._by_peer: defaultdict[str, dict[_Place, None]] = defaultdict(dict)
        """The oldest first."""

    async def wait(self, peer: str, answer: Awaitable[HttpResponse]) -> HttpResponse:
        """Return an answer, or why there is none: no place, or not in time.

        Args:
            peer: The address of the client.
            answer: Is not begun without a place.

        Cost: one pass over the addresses if no place is free.
        """
        if not self._has_place(peer):
            if isinstance(answer, Coroutine):
                answer.close()
            return _FULL
        seconds = self._limits.answer_seconds
        place = _Place(peer, asyncio.timeout(seconds))
        try:
            async with place.time:
                self._taken += 1
                self._by_peer[peer][place] = None
                return await answer
        except TimeoutError:
            if place.given_up:
                return _FULL
            return error_response(504, f"no answer within {seconds:g} s")
        finally:
            self._free(place)

    def _has_place(self, peer: str) -> bool:
        """Return whether an address gets one more place; take it from another if need be."""
        if self._taken < self._limits.requests:
            return True
        largest = max(self._by_peer.values(), key=len, default={})
        if len(largest) <= len(self._by_peer.get(peer, ())) + 1:
            return False
        oldest = next(iter(largest))
        oldest.given_up = True
        if not oldest.time.expired():
            oldest.time.reschedule(self._loop.time())
        self._free(oldest)
        return True

    def _free(self, place: "_Place") -> None:
        same = self._by_peer.get(place.peer)
        if same is None or place not in same:
            return
        del same[place]
        self._taken -= 1
        if not same:
            del self._by_peer[place.peer]


@dataclass(slots=True, eq=False)
class _Place:
    peer: str
    time: asyncio.Timeout
    given_up: bool = False
    """It was given to another address."""
