"""Limits of a server for its clients."""

from dataclasses import dataclass

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes [bytes], counts, and times [s]."""

    body_bytes: int = 12 * _MIB
    """Of one body. If a review is refused for its size, the call fails and the pod may pass. An
    API server stores objects of up to 1.5 MiB, or 9 MiB as JSON, where `<` becomes six bytes."""
    bytes_in_flight: int = 64 * _MIB
    """Of all bodies and unread answers together. With decoding, this bounds the memory that hostile
    clients can use."""
    bytes_ahead: int = 16 * _MIB
    """Of all that clients send while their previous requests are answered; an API server does not.
    Beyond it a connection that does is dropped."""
    requests: int = 300
    """Requests whose route waits for something, bodies read; the rest of the connections can be
    dropped for others. Beyond it the address that has most of them loses one."""
    connections: int = 450
    """Each can take half a MiB under TLS, also in its handshake, beyond the bytes that are counted
    here. Beyond it the least useful one is dropped, see
    `linkwise.runtime.http.connection_limiter`."""
    peer_connections: int = 350
    """Of one address; the rest is for others. An API server can share its address with others."""
    peer_half_sent: int = 200
    """Incomplete requests of one address; beyond it the oldest is dropped. Requests of an API
    server arrive whole, so that few of them are incomplete under any load."""
    backlog: int = 1024
    """Connections that the kernel holds until they are accepted; a burst opens hundreds."""
    handshake_seconds: float = 5
    """Of a TLS handshake, during which a connection counts as an open one. An API server waits 3 s
    for the answer."""
    head_seconds: float = 10
    """From the first byte of a head to its last."""
    body_seconds: float = 5
    """From the head of a request to the last byte of its body; an API server waits 3 s for the
    answer."""
    answer_seconds: float = 10
    """Of a route that waits for something."""
    unread_seconds: float = 5
    """From an answer until its client has read it; an API server waits 3 s for all of it."""
    linger_seconds: float = 2
    """For reading, and ignoring, the rest of a refused body: a client sends before it reads."""
    keep_alive_seconds: float = 120
    """Of an idle connection. An API server keeps it for 90 s. If ours were shorter, it could send a
    POST on a connection that was just closed, and would not repeat it."""
