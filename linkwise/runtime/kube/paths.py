"""Build paths of the Kubernetes API from names that others may have chosen.

A name with `/`, `?` or `..` would make a path of another object, which is then read or changed with
our rights.
"""

import re

from linkwise.runtime.kube.errors import KubeError

_SEGMENT = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._:~-]{1,253}", re.ASCII)
"""Names of all objects that Linkwise reads or writes; none of its characters needs quoting."""


class InvalidPath(KubeError):  # noqa: N818 - the name of the condition.
    """A part of a path that is no name of an object; nothing was sent."""


def api_path(api_version: str, *segments: str) -> str:
    """Return the path of a collection or an object.

    Args:
        api_version: Such as `v1` or `apps/v1`.
        segments: Such as `namespaces`, its name, `pods`, its name, `status`.

    Raises:
        InvalidPath: A segment is no name, such as an empty one.
    """
    group, slash, version = api_version.rpartition("/")
    return path_below("", *(("apis", group, version) if slash else ("api", version)), *segments)


def path_below(path: str, *segments: str) -> str:
    """Return a path with more segments.

    Args:
        path: Of a collection or an object.
        segments: As of `api_path`.

    Raises:
        InvalidPath: As of `api_path`.
    """
    for segment in segments:
        if not is_segment(segment):
            raise InvalidPath(f"{segment[:64]!r} is no part of a path of the API")
    return "/".join((path, *segments))


def is_segment(text: str) -> bool:
    """Return whether a text may be a segment of a path: no object has another name."""
    return _SEGMENT.fullmatch(text) is not None
