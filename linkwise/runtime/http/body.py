"""Read bodies within the limits of one request and of all requests together."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Protocol

from aiohttp import StreamReader

from linkwise.runtime.http.limits import Limits
from linkwise.runtime.http.types import HttpResponse, error_response, retry_later


class Sender(Protocol):
    """A connection, as it is needed here."""

    peer: str

    def drop_body(self) -> None:
        """Close it: the body that it sends was given up for others."""
        ...


class ByteBudget:
    """Bytes of bodies and of unread answers that are held now, over all requests.

    Where there is no room, answers that are not read go first, then bodies of the address that
    holds the most: otherwise one client could have the requests of all others refused.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        self.bodies: set[Body] = set()
        """Bodies that nothing has been made of yet."""
        self.reclaim: Callable[[], bool] = lambda: False
        """Gives back an unread answer; returns whether there was one."""

    def take(self, size: int, peer: str = "") -> bool:
        """Hold some more, if they fit.

        Args:
            size: Number of bytes.
            peer: The address whose body it is for; empty for none.

        Cost: one pass over `bodies` for each body that is given up.
        """
        while self.held + size > self.limit:
            if not (self.reclaim() or (peer and self._give_up_body(peer, size))):
                return False
        self.held += size
        return True

    def hold(self, size: int) -> None:
        """Hold bytes that exist already; reclaim others if they do not fit."""
        if not self.take(size):
            self.held += size

    def give_back(self, size: int) -> None:
        """Release what was taken."""
        self.held -= size

    def _give_up_body(self, peer: str, size: int) -> bool:
        """Give up a body of the address that holds the most, if it is more than `peer` will."""
        held = Counter({peer: size})
        for body in self.bodies:
            held[body.sender.peer] += body.size
        largest = max(held, key=held.__getitem__)
        if held[largest] <= held[peer]:
            return False
        given_up = max((b for b in self.bodies if b.sender.peer == largest), key=lambda b: b.size)
        given_up.close()
        given_up.given_up = True
        given_up.sender.drop_body()
        return True


class Body:
    """The body of one request, which uses the budget until it is closed.

    Only bytes that have arrived are counted. If the size in the header were counted, heads alone
    could use up the budget.
    """

    __slots__ = ("_budget", "_limits", "_pieces", "given_up", "sender", "size")

    def __init__(self, budget: ByteBudget, limits: Limits, sender: Sender) -> None:
        self._budget = budget
        self._limits = limits
        self._pieces: list[bytes] = []
        self.sender = sender
        self.size = 0
        self.given_up = False
        """It was closed for others; nothing more is taken."""

    def take(self, piece: bytes) -> HttpResponse | None:
        """Keep bytes that have arrived.

        Returns:
            Why the body is refused; None where it is not.
        """
        size = len(piece)
        if self.size + size > self._limits.body_bytes:
            return too_large(self._limits)
        if self.given_up or not self._budget.take(size, self.sender.peer):
            return retry_later("too many bytes of requests are being held: send it again")
        self.size += size
        self._pieces.append(piece)
        self._budget.bodies.add(self)
        return None

    async def take_rest(self, content: StreamReader) -> HttpResponse | None:
        """Wait for the rest of the body.

        Returns:
            Why the body is refused; None where it is complete.
        """
        seconds = self._limits.body_seconds
        try:
            async with asyncio.timeout(seconds):
                while not content.at_eof():
                    if refused := self.take(await content.readany()):
                        return refused
        except TimeoutError:
            return error_response(408, f"the body did not arrive within {seconds:g} s")
        return None

    def content(self) -> bytes:
        """Return all bytes that were taken; call it once."""
        self._budget.bodies.discard(self)
        content = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        # The pieces would double the memory of a large body while it is decoded.
        self._pieces.clear()
        return content

    def close(self) -> None:
        """Return its bytes to the budget."""
        self._budget.bodies.discard(self)
        self._budget.give_back(self.size)
        self.size = 0
        self._pieces.clear()


def too_large(limits: Limits) -> HttpResponse:
    """Return the answer to a body that is larger than allowed."""
    return error_response(413, f"the body is larger than {limits.body_bytes} bytes")
