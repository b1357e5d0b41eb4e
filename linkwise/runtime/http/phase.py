"""The phases of a connection of a server."""

from enum import Enum, auto


class Phase(Enum):
    """The part of a request that is arriving, or what is done with it."""

    HANDSHAKE = auto()
    """It was accepted, and TLS is not established."""
    IDLE = auto()
    """No part of a request has arrived."""
    HEAD = auto()
    """Bytes have arrived, and the handler was not called for them."""
    BODY = auto()
    """The handler was called; the body is not complete."""
    TURN = auto()
    """The request is complete and waits for its turn."""
    ANSWER = auto()
    """It is being answered."""
    CLOSING = auto()
    """The last answer was given; further bytes are ignored."""

    @property
    def is_half_sent(self) -> bool:
        """A part of a request or of a handshake is missing."""
        return self in (Phase.HANDSHAKE, Phase.HEAD, Phase.BODY)

    @property
    def is_complete(self) -> bool:
        """A request has arrived, and has no answer."""
        return self in (Phase.TURN, Phase.ANSWER)
