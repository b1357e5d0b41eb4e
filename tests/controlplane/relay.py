"""A TCP relay that balances, cuts, delays or silences connections."""

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Thread
from typing import Self, TypeVar

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Connection:
    writers: tuple[asyncio.StreamWriter, asyncio.StreamWriter]
    speaks: asyncio.Event = field(default_factory=asyncio.Event)
    """Unset: data and ends of connections are lost without an error."""
    asked: float = 0
    """When the client sent anything last, by the loop's clock [s]."""


class Relay:
    """A port of the loopback interface that forwards connections to others; use it in `with`.

    It runs in a thread of its own; a change of its settings is in force when the call returns.
    """

    def __init__(
        self, targets: Callable[[], Sequence[int]], address: tuple[str, int] = ("127.0.0.1", 0)
    ) -> None:
        """Forward connections to the present targets in turn.

        Args:
            targets: Returns the ports, of the loopback interface.
            address: Where it listens; a port of 0 is any free one.
        """
        self._targets = targets
        self._address = address
        self._turn = itertools.count()
        self._connections: set[_Connection] = set()
        self._listener: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, daemon=True)
        self.refuses = False
        """Whether new connections are cut at once."""
        self.lag = 0.0
        """What servers send is passed on so much later [s]."""
        self.prompt = 0.0
        """What a server sends so soon after its client sent anything is not delayed [s]: answers of
        an API server are prompt then, and only watches lag."""
        self.port = 0

    @property
    def server(self) -> str:
        """Its address, for TLS."""
        return f"https://127.0.0.1:{self.port}"

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._connections)

    def __enter__(self) -> Self:
        self._thread.start()
        self._call(self._listen())
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut(self) -> int:
        """Break open connections; return how many they were."""
        return self._call(self._cut())

    def silence(self) -> int:
        """Forward nothing more on open connections; return how many they are."""
        return self._call(self._silence())

    def _call(self, work: Coroutine[None, None, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _listen(self) -> None:
        self._listener = await asyncio.start_server(self._accept, *self._address, backlog=1024)
        self.port = self._listener.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        if self._listener:
            self._listener.close()
        await self._cut()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            await asyncio.wait(others, timeout=10)

    async def _cut(self) -> int:
        gone = list(self._connections)
        for connection in gone:
            for writer in connection.writers:
                writer.transport.abort()
            connection.speaks.set()
        return len(gone)

    async def _silence(self) -> int:
        for connection in self._connections:
            connection.speaks.clear()
        return len(self._connections)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        targets = self._targets()
        if self.refuses or not targets:
            writer.transport.abort()
            return
        port = targets[next(self._turn) % len(targets)]
        try:
            there, back = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.transport.abort()
            return
        connection = _Connection((writer, back))
        connection.speaks.set()
        self._connections.add(connection)
        ways = (self._ask(connection, reader, back), self._answer(connection, there, writer))
        await asyncio.gather(*ways)
        self._connections.discard(connection)

    async def _ask(
        self, connection: _Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Pass on what a client sends until it ends; then the other way ends, too."""
        with suppress(OSError):
            while data := await _read(connection, reader):
                connection.asked = self._loop.time()
                writer.write(data)
                await writer.drain()
        writer.close()

    async def _answer(
        self, connection: _Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Pass on what a server sends, in its order and with its delay, until it ends."""
        sent: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        delivery = asyncio.create_task(self._deliver(sent, writer))
        with suppress(OSError):
            while data := await _read(connection, reader):
                now = self._loop.time()
                late = self.lag if now - connection.asked >= self.prompt else 0
                sent.put_nowait((now + late, data))
        sent.put_nowait((0, b""))
        await delivery

    async def _deliver(
        self, sent: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter
    ) -> None:
        with suppress(OSError):
            while (item := await sent.get())[1]:
                await asyncio.sleep(item[0] - self._loop.time())
                writer.write(item[1])
                await writer.drain()
        writer.close()


async def _read(connection: _Connection, reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(1 << 16)
    finally:
        await connection.speaks.wait()
