"""Errors of calls to the Kubernetes API.

KubeError
+ ApiError       the API server refused the call
+ Unreachable    no answer, or not complete
  + TimedOut     no answer in time
+ Unreadable     the answer is not of the expected type
+ TooLong        the answer has more bytes than allowed
"""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Errors of decoding: no JSON or of another type, not UTF-8, nested too deep."""


class KubeError(Exception):
    """A call failed."""


class ApiError(KubeError):
    """The API server refused the call."""

    def __init__(self, status: int, reason: str, message: str, causes: Sequence[str] = ()) -> None:
        super().__init__(f"{message or reason or 'no explanation'} (status {status})")
        self.status = status
        self.reason = reason
        """Reason of the Status, such as `Conflict`; may be empty."""
        self.message = message
        self.causes = tuple(causes)
        """Messages of `details.causes`: of each invalid field, or of the policy that denied the
        request."""


def is_outdated(error: KubeError) -> bool:
    """Return whether the object is gone, or is another or in another version than was named."""
    return isinstance(error, ApiError) and error.status in {404, 409}


class Unreachable(KubeError):  # noqa: N818 - the name of the condition.
    """The API server cannot be reached or did not answer: the call may have been executed."""


class TimedOut(Unreachable):
    """The API server did not answer in time."""


def is_timeout(error: KubeError) -> bool:
    """Return whether the API server did not answer in time, or gave up the call for its length."""
    return isinstance(error, TimedOut) or (isinstance(error, ApiError) and error.status == 504)


class Unreadable(KubeError):  # noqa: N818
    """The answer is not of the expected type."""


class TooLong(KubeError):  # noqa: N818
    """The answer has more bytes than allowed; the rest was not read."""


class _Cause(Struct, frozen=True):
    message: str = ""


class _Details(Struct, frozen=True):
    causes: list[_Cause] | None = None


class _Status(Struct, frozen=True):
    reason: str = ""
    message: str = ""
    details: _Details | None = None


def api_error(status: int, body: bytes) -> ApiError:
    """Return the error of a Status object, or of another body."""
    try:
        decoded = msgspec.json.decode(body, type=_Status)
    except UNDECODABLE:
        decoded = _Status(message=body[:500].decode(errors="replace").strip())
    causes = (decoded.details.causes if decoded.details else None) or ()
    return ApiError(status, decoded.reason, decoded.message, [cause.message for cause in causes])
