"""Notice that the holder of a Lease has ended: its connection was closed, and its port is refused.

A process that is killed leaves its Lease held. The kernel closes its connections at once, and then
refuses new ones. A holder that is cut off, or whose machine is gone, refuses nothing: for it only
the duration of the Lease counts. A wrong result is safe, as a holder that was suspended is: the API
server refuses the writes of its term.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

_RETRY = 1.0
"""Between two connections, unless the first one lasted longer [s]."""


async def until_ended(address: str, retry: float = _RETRY) -> None:
    """Wait until a process that accepted a connection at an address refuses another one.

    Args:
        address: `host:port`; without one this never ends.
        retry: Between two connections, unless the first one lasted longer [s].
    """
    host, _, port = address.rpartition(":")
    was_connected = False
    while host and port.isdecimal():
        try:
            async with asyncio.timeout(retry):
                reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
        except ConnectionRefusedError:
            if was_connected:
                return
        except (OSError, OverflowError):
            pass
        else:
            was_connected = True
            started = asyncio.get_running_loop().time()
            try:
                with suppress(OSError):
                    await reader.read(1)
            finally:
                writer.close()
            if asyncio.get_running_loop().time() - started >= retry:
                continue
        await asyncio.sleep(retry)
    await asyncio.Event().wait()


class HolderWatch:
    """Watches the holder of a Lease in one term."""

    def __init__(self, on_end: Callable[[], None]) -> None:
        """Watch no holder; `on_end` is called when a holder has ended."""
        self._on_end = on_end
        self._holder: tuple[str, int] | None = None
        self._task: asyncio.Task[None] | None = None

    def follow(self, holder: str, term: int, address: str) -> None:
        """Watch the holder of a term, instead of the one before."""
        if self._holder != (holder, term):
            self.close()
            self._holder = holder, term
            self._task = asyncio.create_task(until_ended(address))
            self._task.add_done_callback(lambda _: self._on_end())

    @property
    def has_ended(self) -> bool:
        """The holder that is watched has ended."""
        return self._task is not None and self._task.done() and not self._task.cancelled()

    def close(self) -> None:
        """Stop watching."""
        if self._task is not None:
            self._task.cancel()
        self._holder = self._task = None
