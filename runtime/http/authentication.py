"""Who calls us: the API server knows whose a token is, and for whom it was made."""

from msgspec import Struct

from runtime.http.types import HttpRequest
from runtime.kube.client import Kube

_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"


class UserInfo(Struct, frozen=True):
    """A user as the API server knows them."""

    username: str = ""
    uid: str = ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}


class _Authentication(Struct, frozen=True):
    authenticated: bool = False
    user: UserInfo = UserInfo()
    audiences: list[str] = []


class _TokenReview(Struct, frozen=True):
    status: _Authentication = _Authentication()


async def authenticate(kube: Kube, call: HttpRequest, audience: str) -> UserInfo | None:
    """Return who makes a call; None where it brings no token, nobody's, or one for somebody else.

    A token for the API server itself is refused: whoever took it from us could use it there.

    Args:
        kube: Whom to ask.
        call: With its token in `Authorization: Bearer`.
        audience: Whom the token must be made for.

    Raises:
        KubeError: The API server does not tell.
    """
    scheme, _, token = call.headers.get("Authorization", "").partition(" ")
    if scheme != "Bearer" or not token:
        return None
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": token, "audiences": [audience]},
    }
    status = (await kube.create(_REVIEWS, body, _TokenReview)).status
    # One that does not know audiences says nothing of them, and then the token may be for anybody.
    return status.user if status.authenticated and audience in status.audiences else None
