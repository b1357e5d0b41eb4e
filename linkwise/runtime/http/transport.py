"""A transport that two owners can pause: aiohttp, and the connection around it."""

import asyncio
import fcntl
import struct
import termios
from typing import Any


class PausableTransport:
    """A transport for aiohttp, which does not resume reading while the connection has a buffer."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._paused = {"aiohttp": False, "connection": False}
        # Bound here, since it is called for every response.
        self.write = transport.write

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any attribute of a transport.
        return getattr(self._transport, name)

    @property
    def has_unsent(self) -> bool:
        """The kernel has not sent all bytes that were written, or the client does not take them."""
        try:
            return _unsent(self._transport.get_extra_info("socket").fileno()) > 0
        except (OSError, ValueError):
            return True  # It is being closed; the transport may hold bytes.

    def pause_reading(self) -> None:
        """Pause reading for aiohttp."""
        self.pause("aiohttp", paused=True)

    def resume_reading(self) -> None:
        """Resume reading for aiohttp."""
        self.pause("aiohttp", paused=False)

    def pause(self, owner: str, *, paused: bool) -> None:
        """Pause or resume reading for one owner; bytes are read while no owner has paused."""
        if self._paused[owner] is paused:
            return
        before = any(self._paused.values())
        self._paused[owner] = paused
        after = any(self._paused.values())
        if after and not before:
            self._transport.pause_reading()
        elif before and not after:
            self._transport.resume_reading()


def _unsent(descriptor: int) -> int:
    """Return how many bytes the kernel holds for a socket that its peer has not confirmed.

    Raises:
        OSError: It is no socket that is open.
    """
    queue = fcntl.ioctl(descriptor, termios.TIOCOUTQ, bytes(4))
    return int(struct.unpack("i", queue)[0])
