"""JSON pointers (RFC 6901)."""


def escape(key: str) -> str:
    """Return a map's key as one segment of a JSON pointer (RFC 6901, section 3).

    >>> escape("example.org/a~1")
    'example.org~1a~01'
    """
    if "~" in key:
        key = key.replace("~", "~0")
    return key.replace("/", "~1") if "/" in key else key
