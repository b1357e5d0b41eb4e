"""JSON that an API server sends, read whatever its depth.

Whoever may write an object may nest its `managedFields` 10,000 levels deep, and an API server sends
it together with others. A decoder reads, or skips, about as many levels as Python nests calls.
"""

from typing import TypeVar

from msgspec import Raw
from msgspec.json import Decoder

T = TypeVar("T")

_DEEPEST = 100
"""Levels that are read; fields that somebody reads are at most 20 deep."""
_CHUNK = 1 << 20
"""Bytes that are looked at together, since each takes several of memory meanwhile."""


def decode(body: bytes | Raw, decoder: Decoder[T]) -> T:
    """Return what bytes hold, without what is nested too deep.

    Raises:
        msgspec.DecodeError: They hold something else.
        UnicodeDecodeError: They are no text.
    """
    try:
        return decoder.decode(body)
    except RecursionError:
        return decoder.decode(_shallow(bytes(body)))


def _shallow(body: bytes) -> bytes:
    """Return JSON of which the objects and lists at the deepest level are empty.

    Cost: linear, about 10 ms for 1 MB.
    """
    # Here, since few processes ever need it, and it takes memory.
    import numpy as np  # noqa: PLC0415

    # Of the same length, so that a quote begins or ends a text.
    plain = body.replace(rb"\\", b"__").replace(rb"\"", b"__")
    kept: list[bytes] = []
    quotes = depth = 0
    for start in range(0, len(body), _CHUNK):
        part = np.frombuffer(plain[start : start + _CHUNK], np.uint8)
        # Sums of 8 bits tell odd from even, however many there are.
        count = np.cumsum(part == ord('"'), dtype=np.uint8) + np.uint8(quotes)
        outside = count & 1 == 0
        opens = ((part == ord("{")) | (part == ord("["))) & outside
        closes = ((part == ord("}")) | (part == ord("]"))) & outside
        depths = np.cumsum(opens.astype(np.int8) - closes, dtype=np.int32) + depth
        # A bracket that opens stands at the depth behind it, one that closes at that before it.
        levels = depths + closes
        keep = (levels < _DEEPEST) | ((levels == _DEEPEST) & (opens | closes))
        kept.append(np.frombuffer(body[start : start + _CHUNK], np.uint8)[keep].tobytes())
        quotes, depth = int(count[-1]) & 1, int(depths[-1])
    return b"".join(kept)
