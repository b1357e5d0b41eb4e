"""Errors of calls to the Kubernetes API.

KubeError
+ ApiError       the API server answered no
+ Unreachable    nobody answered, or not in time, or not to the end
+ Unreadable     the answer is not what was asked for
+ TooLong        the answer has more bytes than there is memory for
"""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding raises: it is no JSON or of another type, no UTF-8, or nested too deep."""


class KubeError(Exception):
    """A call did not do what it should."""


class ApiError(KubeError):
    """An API server's refusal."""

    def __init__(self, status: int, reason: str, message: str, causes: Sequence[str] = ()) -> None:
        super().__init__(f"{message or reason or 'no explanation'} (status {status})")
        self.status = status
        self.reason = reason
        """A word for machines, such as `Conflict`; empty where none was given."""
        self.message = message
        self.causes = tuple(causes)
        """Messages of `details.causes`: one for each field that is invalid, or for the policy that
        denied the request."""


class Unreachable(KubeError):  # noqa: N818 - it says all.
    """An API server that cannot be reached, or fell silent: the call may have been carried out."""


class Unreadable(KubeError):  # noqa: N818
    """An answer that is not of the type that was asked for."""


class TooLong(KubeError):  # noqa: N818
    """An answer of more bytes than were allowed; no more of it was read."""


class _Cause(Struct, frozen=True):
    message: str = ""


class _Details(Struct, frozen=True):
    causes: list[_Cause] | None = None


class _Status(Struct, frozen=True):
    reason: str = ""
    message: str = ""
    details: _Details | None = None


def api_error(status: int, body: bytes) -> ApiError:
    """Return the error that a Status object, or whatever came instead, stands for."""
    try:
        found = msgspec.json.decode(body, type=_Status)
    except UNDECODABLE:
        found = _Status(message=body[:200].decode(errors="replace").strip())
    causes = (found.details.causes if found.details else None) or ()
    return ApiError(status, found.reason, found.message, [cause.message for cause in causes])
