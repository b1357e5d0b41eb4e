"""Times of Kubernetes objects, in RFC 3339."""

from datetime import datetime


def seconds_of(time: str | None) -> float | None:
    """Return a time of an object [s since 1970]; None: it has none, or one that cannot be read."""
    try:
        return datetime.fromisoformat(time or "").timestamp()
    except (ValueError, OverflowError):
        return None
