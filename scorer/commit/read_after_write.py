"""Read what became of a write that had no answer."""

import asyncio
from typing import TypeVar

from runtime.kube.client import ApiError, Kube, KubeError

T = TypeVar("T")

_PAUSE = 2.0
"""Before a read: as long as `fence.GRANTING` lets a write take [s]."""


def outcome_unknown(error: KubeError) -> bool:
    """Tell whether what failed so may have been carried out all the same."""
    return not isinstance(error, ApiError) or error.status >= 500


async def read_after_write(
    kube: Kube, path: str, returns: type[T], *, is_open: bool = True
) -> T | None:
    """Return an object as it is after a write on it failed; None: it is gone.

    Asks until it is answered: until then the write counts as carried out.

    Args:
        kube: The API server.
        path: The object's.
        returns: Its type.
        is_open: The write may still be under way, so that the first read waits.
    """
    while True:
        if is_open:
            await asyncio.sleep(_PAUSE)
        is_open = True
        try:
            return await kube.get(path, returns)
        except ApiError as error:
            if error.status == 404:
                return None
        except KubeError:
            pass
