"""Who calls the dry-run API, and what they may ask about: the API server decides both."""

from typing import Any

from msgspec import Struct

from cluster import keys
from runtime.kube import Kube

_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class Caller(Struct, frozen=True):
    """A user as the API server knows them."""

    username: str = ""
    uid: str = ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}


class _Authentication(Struct, frozen=True):
    authenticated: bool = False
    user: Caller = Caller()
    audiences: list[str] = []


class _TokenReview(Struct, frozen=True):
    status: _Authentication = _Authentication()


class _Authorization(Struct, frozen=True):
    allowed: bool = False


class _AccessReview(Struct, frozen=True):
    status: _Authorization = _Authorization()


async def caller_of(kube: Kube, token: str) -> Caller | None:
    """Return whose token it is; None where it is nobody's, or was not made for us.

    A token for the API server itself is refused: whoever took it from us could use it there.

    Raises:
        KubeError: The API server does not tell.
    """
    body = _review("authentication.k8s.io/v1", "TokenReview", token=token, audiences=[_AUDIENCE])
    status = (await kube.create(_REVIEWS, body, _TokenReview)).status
    # One that does not know audiences says nothing of them, and then the token may be for anybody.
    return status.user if status.authenticated and _AUDIENCE in status.audiences else None


async def may_create_pods(kube: Kube, caller: Caller, namespace: str) -> bool:
    """Say whether a caller may create pods in a namespace.

    Raises:
        KubeError: The API server does not tell.
    """
    wanted = {"namespace": namespace, "verb": "create", "version": "v1", "resource": "pods"}
    body = _review(
        "authorization.k8s.io/v1",
        "SubjectAccessReview",
        user=caller.username,
        uid=caller.uid,
        groups=caller.groups,
        extra=caller.extra,
        resourceAttributes=wanted,
    )
    return (await kube.create(_ACCESS, body, _AccessReview)).status.allowed


_AUDIENCE = keys.DRY_RUN_AUDIENCE


def _review(api_version: str, kind: str, **spec: Any) -> dict[str, object]:  # noqa: ANN401
    return {"apiVersion": api_version, "kind": kind, "spec": spec}
