"""Read an object after a write on it that had no answer."""

import asyncio
from contextlib import suppress
from typing import TypeVar

from linkwise.runtime.kube.client import ApiError, Kube, KubeError

T = TypeVar("T")


def outcome_unknown(error: KubeError) -> bool:
    """Return whether a write that failed with this error may have been carried out."""
    return not isinstance(error, ApiError) or error.status >= 500


async def read_after_write(
    kube: Kube, path: str, returns: type[T], *, pause: float, is_pending: bool = True
) -> T | None:
    """Return an object as it is after a write on it failed; None: it does not exist.

    Retries until there is an answer: until then the write counts as carried out.

    Args:
        kube: The API server.
        path: The object's.
        returns: Its type.
        pause: Before each retry [s]: as long as the API server may work on a write
            (`fence.WRITE_TIMEOUT`).
        is_pending: The API server may still work on the write, so that the first read waits, too.
    """
    while True:
        if is_pending:
            await asyncio.sleep(pause)
        is_pending = True
        with suppress(KubeError):
            return await kube.find(path, returns)
