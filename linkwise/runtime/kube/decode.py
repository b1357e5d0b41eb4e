"""Decode JSON of any depth from an API server.

A user who may write an object may nest its `managedFields` 10,000 levels deep, and a list contains
it together with others. A decoder reads, or skips, about as many levels as Python nests calls.
"""

from typing import TypeVar

from msgspec import Raw
from msgspec.json import Decoder

T = TypeVar("T")

_DEEPEST = 100
"""Levels that are decoded; the fields that Linkwise reads are at most 20 deep."""
_CHUNK = 1 << 20
"""Bytes that are processed together; each needs several bytes of memory meanwhile."""


def decode(body: bytes | Raw, decoder: Decoder[T]) -> T:
    """Decode JSON; values that are nested too deep are left out.

    Raises:
        msgspec.DecodeError: It is no JSON, or not of the decoder's type.
        UnicodeDecodeError: It is not UTF-8.
    """
    try:
        return decoder.decode(body)
    except RecursionError:
        return decoder.decode(_shallow(bytes(body)))


def _shallow(body: bytes) -> bytes:
    """Return JSON whose objects and lists at the deepest level are empty.

    Cost: linear, about 10 ms for 1 MB.
    """
    # Imported here: few processes need it, and it takes memory.
    import numpy as np  # noqa: PLC0415

    # Escapes are replaced by as many bytes: each remaining quote begins or ends a string.
    plain = body.replace(rb"\\", b"__").replace(rb"\"", b"__")
    kept: list[bytes] = []
    quotes = depth = 0
    for start in range(0, len(body), _CHUNK):
        part = np.frombuffer(plain[start : start + _CHUNK], np.uint8)
        # Only parity matters, so 8 bits are enough.
        count = np.cumsum(part == ord('"'), dtype=np.uint8) + np.uint8(quotes)
        outside = count & 1 == 0
        opens = ((part == ord("{")) | (part == ord("["))) & outside
        closes = ((part == ord("}")) | (part == ord("]"))) & outside
        depths = np.cumsum(opens.astype(np.int8) - closes, dtype=np.int32) + depth
        # The level of an opening bracket is the depth after it, of a closing one that before it.
        levels = depths + closes
        keep = (levels < _DEEPEST) | ((levels == _DEEPEST) & (opens | closes))
        kept.append(np.frombuffer(body[start : start + _CHUNK], np.uint8)[keep].tobytes())
        quotes, depth = int(count[-1]) & 1, int(depths[-1])
    return b"".join(kept)
