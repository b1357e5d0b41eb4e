"""Bounds of names in the objects about volumes, some of which tenants write."""

from sys import intern

NAME_MAX = 253
"""Longest name of an object [characters]."""


def kept_name(text: str) -> str:
    """Return a name; of one that is too long to be valid, so much that it equals no valid one."""
    return intern(text[: NAME_MAX + 1])
