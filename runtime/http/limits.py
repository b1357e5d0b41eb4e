"""What one server grants its clients."""

from dataclasses import dataclass

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes [bytes], counts, and times [s]."""

    body_bytes: int = 12 * _MIB
    """A review that is refused here is a failed call, which lets its pod pass. An API server keeps
    objects of up to 1.5 MiB; as JSON, where `<` becomes six characters, that is up to 9 MiB."""
    bytes_in_flight: int = 64 * _MIB
    """Of all bodies together; with decoding, the memory that hostile ones can make us hold."""
    requests: int = 100
    """That are being answered at once, bodies read; it bounds routes that wait for others."""
    connections: int = 900
    """Below 1,024, the usual limit of open files; the least useful one makes room (`room.py`)."""
    peer_connections: int = 700
    """Of one address; the rest is for others. An API server can share its address with others."""
    peer_half_sent: int = 200
    """Requests of one address of which only a part has arrived; the slowest is dropped. Those of an
    API server arrive at once, so that it has few of them, whatever its load."""
    backlog: int = 1024
    """Connections that the kernel keeps until they are accepted; a burst opens hundreds."""
    handshake_seconds: float = 10
    """Go's own limit for a TLS handshake."""
    head_seconds: float = 10
    """From a head's first byte to its last."""
    body_seconds: float = 5
    """From a body's first byte to its last; an API server waits 3 s for the answer."""
    answer_seconds: float = 10
    """For a route that waits for others."""
    linger_seconds: float = 2
    """For reading on, and forgetting, what a client sends after it was refused."""
    keep_alive_seconds: float = 120
    """An API server keeps an idle connection for 90 s. Were ours shorter, it could send a POST into
    a connection that we have just closed, and would not repeat it."""
