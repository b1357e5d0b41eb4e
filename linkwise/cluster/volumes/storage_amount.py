"""Sizes of volumes, as claims ask for them and volumes have them."""

from math import ceil

from linkwise.cluster.objects.container import Amounts
from linkwise.cluster.objects.quantity import QuantityError, parse_quantity

_STORAGE = "storage"
_MOST = 1 << 63


def storage_bytes(amounts: Amounts | None) -> int:
    """Return the size in some amounts [bytes]; 0 where there is none, or no quantity."""
    try:
        return min(ceil(parse_quantity((amounts or {}).get(_STORAGE, 0))), _MOST)
    except QuantityError:
        return 0
