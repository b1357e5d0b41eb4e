"""Reading a body: never more than allowed, of one request and of all of them together."""

import asyncio

from aiohttp import StreamReader, web

from runtime.exchange import Answer, busy, refusal
from runtime.limits import Limits


class Budget:
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
        """Let go of what was taken."""
        self.held -= size


class Body:
    """One request's body, and what it takes of the budget until it is closed.

    What is counted is what has arrived: were it what a header announces, heads alone could use the
    budget up.
    """

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self.size = 0

    async def read(self, request: web.BaseRequest, limits: Limits) -> bytes | Answer:
        """Return the body, or why it is refused.

        Raises:
            ConnectionError: The client went away.
        """
        if (request.content_length or 0) > limits.body_bytes:
            return _too_large(limits)
        content = request.content
        if content.is_eof():
            whole = content.read_nowait()
            return self._take(len(whole), limits) or whole
        if request.headers.get("Expect", "").lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        try:
            async with asyncio.timeout(limits.body_seconds):
                return await self._collect(content, limits)
        except TimeoutError:
            return refusal(408, f"the body did not arrive within {limits.body_seconds:g} s")

    async def _collect(self, content: StreamReader, limits: Limits) -> bytes | Answer:
        chunks = []
        async for chunk in content.iter_any():
            if refused := self._take(len(chunk), limits):
                return refused
            chunks.append(chunk)
        return b"".join(chunks)

    def _take(self, size: int, limits: Limits) -> Answer | None:
        if self.size + size > limits.body_bytes:
            return _too_large(limits)
        if not self._budget.take(size):
            return busy("too many bytes of requests are being held: send it again")
        self.size += size
        return None

    def close(self) -> None:
        """Give back what was taken."""
        self._budget.give_back(self.size)


def _too_large(limits: Limits) -> Answer:
    return refusal(413, f"the body is larger than {limits.body_bytes} bytes")
