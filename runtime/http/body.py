"""Read bodies within the limits of one request and of all requests together."""

import asyncio

from aiohttp import StreamReader

from runtime.http.limits import Limits
from runtime.http.types import HttpResponse, error_response, retry_later


class ByteBudget:
    """Bytes of bodies that are held now, over all requests."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0

    def take(self, size: int) -> bool:
        """Hold some more, if they fit."""
        if self.held + size > self.limit:
            return False
        self.held += size
        return True

    def give_back(self, size: int) -> None:
        """Release what was taken."""
        self.held -= size


class Body:
    """The body of one request, which uses the budget until it is closed.

    Only bytes that have arrived are counted. If the size in the header were counted, heads alone
    could use up the budget.
    """

    __slots__ = ("_budget", "_limits", "_pieces", "size")

    def __init__(self, budget: ByteBudget, limits: Limits) -> None:
        self._budget = budget
        self._limits = limits
        self._pieces: list[bytes] = []
        self.size = 0

    def take(self, piece: bytes) -> HttpResponse | None:
        """Keep bytes that have arrived.

        Returns:
            Why the body is refused; None where it is not.
        """
        size = len(piece)
        if self.size + size > self._limits.body_bytes:
            return too_large(self._limits)
        if not self._budget.take(size):
            return retry_later("too many bytes of requests are being held: send it again")
        self.size += size
        self._pieces.append(piece)
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
        content = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        # The pieces would double the memory of a large body while it is decoded.
        self._pieces.clear()
        return content

    def close(self) -> None:
        """Return its bytes to the budget."""
        self._budget.give_back(self.size)
        self._pieces.clear()


def too_large(limits: Limits) -> HttpResponse:
    """Return the answer to a body that is larger than allowed."""
    return error_response(413, f"the body is larger than {limits.body_bytes} bytes")
