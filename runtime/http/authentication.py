"""Authenticate the callers of our APIs by TokenReview."""

from msgspec import Struct

from runtime.http.types import HttpRequest
from runtime.kube.client import Kube

_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"


class UserInfo(Struct, frozen=True):
    """A user, as the API server identifies it."""

    username: str = ""
    uid: str = ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}


class _TokenReviewStatus(Struct, frozen=True):
    authenticated: bool = False
    user: UserInfo = UserInfo()
    audiences: list[str] = []


class _TokenReview(Struct, frozen=True):
    status: _TokenReviewStatus = _TokenReviewStatus()


async def authenticate(kube: Kube, request: HttpRequest, audience: str) -> UserInfo | None:
    """Return the user of a request's token; None without a valid token for this audience.

    A token for the API server itself is refused: a process that reads it here could use it there.

    Args:
        kube: Client of the API server.
        request: With the token in `Authorization: Bearer`.
        audience: The audience that the token must have.

    Raises:
        KubeError: The API server does not answer, or refuses the review.
    """
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    # An API server reads the first word alone: one token would have any number of forms.
    if scheme != "Bearer" or token.split() != [token]:
        return None
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": token, "audiences": [audience]},
    }
    status = (await kube.create(_REVIEWS, body, _TokenReview)).status
    # An API server that does not support audiences returns none; then the token may be for any.
    return status.user if status.authenticated and audience in status.audiences else None
