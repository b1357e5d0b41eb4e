"""Writes that give GPUs: how long they may take, and what became of one without an answer."""

import asyncio
from typing import TypeVar

from runtime.kube import ApiError, Kube, KubeError

T = TypeVar("T")

GRANTING = {"timeout": "2s"}
"""Parameters of every write that gives GPUs. After this time the API server gives the write up, so
that a later read tells what became of it."""
_PAUSE = 2.0
"""Before a read: as long as `GRANTING` lets a write take [s]."""


def is_open(error: KubeError) -> bool:
    """Tell whether what failed so may have been carried out all the same."""
    return not isinstance(error, ApiError) or error.status >= 500


async def settled(kube: Kube, path: str, returns: type[T], *, is_open: bool = True) -> T | None:
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
