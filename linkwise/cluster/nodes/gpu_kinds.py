"""The kinds of GPUs of claims nodes: what the scorer tells admission about attributes of GPUs.

Admission does not watch ResourceSlices. A kind is what many GPUs have in common, such as product
and memory; what differs between GPUs of one product, such as the UUID, is not part of it.
"""

from collections.abc import Iterable
from fractions import Fraction
from operator import itemgetter

import msgspec

from linkwise.cluster.cel.selection import selects
from linkwise.cluster.cel.values import DeviceFacts, Scalar, Version
from linkwise.cluster.keys import DRA_GPU_DRIVER
from linkwise.cluster.nodes.resource_slice import RawDevice, facts_of

KINDS_MAX = 16
"""The number of kinds that are published; if there are more, none is."""
_LONGEST = 16 * 1024
"""Of the text [characters]: it is an annotation of the scorer's Lease."""
_COMMON = frozenset(
    {
        *("type", "productName", "brand", "architecture"),
        *("cudaComputeCapability", "driverVersion", "cudaDriverVersion"),
    }
)
"""Attributes of a kind, without their domain."""
_devices = msgspec.json.Decoder(list[RawDevice])


def kinds_of(facts: Iterable[DeviceFacts]) -> frozenset[DeviceFacts]:
    """Return the kinds of some GPUs."""
    return frozenset(
        DeviceFacts(
            DRA_GPU_DRIVER,
            tuple(
                pair
                for pair in sorted(one.attributes, key=itemgetter(0))
                if pair[0].removeprefix(f"{DRA_GPU_DRIVER}/") in _COMMON and pair[1] is not None
            ),
            tuple(pair for pair in sorted(one.capacity, key=itemgetter(0)) if pair[1] is not None),
            is_partial=True,
        )
        for one in facts
    )


def may_select(selectors: tuple[str, ...], kinds: Iterable[DeviceFacts]) -> bool:
    """Return whether GPUs of some kind may satisfy selectors; True if no kind is known."""
    known = tuple(kinds)
    return not known or any(selects(selectors, kind) is not False for kind in known)


def encode_kinds(kinds: Iterable[DeviceFacts]) -> str:
    """Return kinds as a text, in the form of devices of a ResourceSlice; empty for too many."""
    devices = [
        {
            "attributes": {name: _attribute(value) for name, value in kind.attributes},
            "capacity": {name: {"value": _amount(value)} for name, value in kind.capacity},
        }
        for kind in kinds
    ]
    texts = sorted(msgspec.json.encode(device, order="sorted").decode() for device in devices)
    text = f"[{','.join(texts)}]"
    return text if 0 < len(texts) <= KINDS_MAX and len(text) <= _LONGEST else ""


def decode_kinds(text: str) -> tuple[DeviceFacts, ...]:
    """Return the kinds of a text; none if it has none, or is unreadable."""
    if not text or len(text) > _LONGEST:
        return ()
    try:
        devices = _devices.decode(text)[:KINDS_MAX]
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return ()
    return tuple(msgspec.structs.replace(facts_of(one), is_partial=True) for one in devices)


def _attribute(value: Scalar | None) -> dict[str, str | int | bool]:
    match value:
        case Version():
            return {"version": str(value)}
        case bool():
            return {"bool": value}
        case int():
            return {"int": value}
        case _:
            return {"string": value or ""}


def _amount(value: Fraction | None) -> str:
    """Return an amount, in thousandths where it is not whole."""
    amount = value or Fraction(0)
    return str(int(amount)) if amount.denominator == 1 else f"{int(amount * 1000)}m"
