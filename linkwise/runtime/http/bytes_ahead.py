"""Bytes that a client sends before the answer to its last request."""

from linkwise.runtime.http.body import ByteBudget

_MAX_UNREAD = 64 << 10
"""Bytes that aiohttp may hold for handlers, beyond one read of the socket [bytes]."""

_HELD_BACK = 32 * len(b"GET / HTTP/1.1\r\n\r\n")
"""aiohttp keeps bytes back, unparsed, only behind 32 requests: with fewer bytes it has none."""


class BytesAhead:
    """The bytes of one connection that aiohttp has and no handler has read, and those behind."""

    def __init__(self, budget: ByteBudget) -> None:
        """Start without bytes.

        Args:
            budget: Bytes that all clients of the server sent ahead; it has the size of the buffer.
        """
        self._budget = budget
        self._unread = 0
        self.buffer = b""
        """Those that were not passed to aiohttp."""
        self.may_wait = False
        """Some may wait until a request has its answer."""

    @property
    def is_full(self) -> bool:
        """It has more unread bytes than aiohttp should hold."""
        return self._unread > _MAX_UNREAD

    def add(self, data: bytes) -> bool:
        """Buffer bytes; return whether the budget allows it."""
        if not self._budget.take(len(data)):
            return False
        self.may_wait = True
        self.buffer += data
        return True

    def pass_on(self, data: bytes) -> None:
        """Count bytes that aiohttp gets."""
        self._unread += len(data)

    def end_request(self, read: int) -> None:
        """Count the body that a handler has read [bytes]."""
        # Heads count until the connection is idle: their size is not known.
        self._unread = max(0, self._unread - read)
        self.may_wait = self.may_wait and bool(self.buffer or self._unread >= _HELD_BACK)

    def end_idle(self) -> None:
        """Record that aiohttp has parsed all that it got."""
        self._unread = 0
        self.may_wait = bool(self.buffer)

    def take(self) -> bytes:
        """Return the buffer, and empty it."""
        data, self.buffer = self.buffer, b""
        self._budget.give_back(len(data))
        return data
