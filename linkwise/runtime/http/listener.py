"""Accept the connections of a server, and count each from its first moment, before TLS.

A connection in its handshake takes as much memory as an open one. asyncio's servers show it to
nobody until the handshake is complete.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Any

import structlog

from linkwise.runtime.http.connection import Connection
from linkwise.runtime.http.connection_limiter import ConnectionLimiter
from linkwise.runtime.http.limits import Limits

_AT_ONCE = 64
"""Connections that are accepted before other work goes on."""
_PAUSE = 1.0
"""After a failure, such as for lack of file descriptors [s]."""

_log = structlog.get_logger()


class Listener:
    """The listening sockets of a server."""

    def __init__(
        self,
        limiter: ConnectionLimiter[Connection],
        limits: Limits,
        connection: Callable[[str], Connection],
        context: ssl.SSLContext | None,
    ) -> None:
        """Start without a socket.

        Args:
            limiter: Counts and drops connections.
            limits: Of the server.
            connection: Makes the protocol for a client's address.
            context: For TLS; None for plain connections.
        """
        self._loop = asyncio.get_running_loop()
        self._limiter, self._limits = limiter, limits
        self._connection, self._context = connection, context
        self._sockets: list[socket.socket] = []

    @property
    def port(self) -> int:
        """The port of the first socket."""
        if not self._sockets:
            raise RuntimeError("the server does not listen")
        port: int = self._sockets[0].getsockname()[1]
        return port

    async def listen(self, host: str, port: int) -> None:
        """Accept connections from now on, at all addresses of a host; empty: of the machine.

        Raises:
            OSError: The port is taken.
        """
        found = await self._loop.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        try:
            for family, _, _, _, address in dict.fromkeys(found):
                self._bind(family, address)
        except OSError:
            self.close()
            raise
        for listening in self._sockets:
            self._loop.add_reader(listening, self._accept, listening)

    def close(self) -> None:
        """Accept no further connection."""
        for listening in self._sockets:
            self._loop.remove_reader(listening)
            listening.close()
        self._sockets.clear()

    def _bind(self, family: int, address: tuple[Any, ...]) -> None:
        try:
            listening = socket.socket(family, socket.SOCK_STREAM)
        except OSError:
            return  # The machine has no addresses of this family.
        self._sockets.append(listening)
        listening.setblocking(False)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind(address)
        listening.listen(self._limits.backlog)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_AT_ONCE):
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                _log.error("Could not accept connection", err=str(error))
                self._loop.remove_reader(listening)
                self._loop.call_later(_PAUSE, self._resume, listening)
                return
            if not self._begin(accepted, str(address[0])):
                return  # Others go on first: in a flood each would be dropped before its request.

    def _resume(self, listening: socket.socket) -> None:
        if listening in self._sockets:
            self._loop.add_reader(listening, self._accept, listening)

    def _begin(self, accepted: socket.socket, peer: str) -> bool:
        """Open a connection; return whether there was room for it."""
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = self._connection(peer)
        handshake = self._loop.create_task(self._open(connection, accepted))
        connection.begin_handshake(handshake)
        has_room = self._limiter.add(connection, self._loop.time())

        def end(_: asyncio.Task[None]) -> None:
            if connection.end_handshake():
                return
            # It failed, or was dropped, possibly before it began.
            self._limiter.remove(connection)
            accepted.close()

        handshake.add_done_callback(end)
        return has_room

    async def _open(self, connection: Connection, accepted: socket.socket) -> None:
        opening = self._limits.handshake_seconds if self._context else None
        closing = self._limits.unread_seconds if self._context else None
        try:
            await self._loop.connect_accepted_socket(
                lambda: connection,
                accepted,
                ssl=self._context,
                ssl_handshake_timeout=opening,
                ssl_shutdown_timeout=closing,
            )
        except OSError:
            pass  # The client left, took too long, or does not speak TLS.
        except Exception:  # noqa: BLE001 - one connection must not end others.
            _log.exception("Could not open connection", peer=connection.peer)
