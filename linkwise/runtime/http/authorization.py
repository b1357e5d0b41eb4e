"""Authorize the callers of our APIs by SubjectAccessReview."""

from collections.abc import Mapping

from msgspec import Struct

from linkwise.runtime.http.authentication import UserInfo
from linkwise.runtime.kube.client import Kube

_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class _AccessReviewStatus(Struct, frozen=True):
    allowed: bool = False


class _AccessReview(Struct, frozen=True):
    status: _AccessReviewStatus = _AccessReviewStatus()


async def is_allowed(kube: Kube, caller: UserInfo, attributes: Mapping[str, str]) -> bool:
    """Return whether the API server would allow a request of a caller.

    Args:
        kube: Client of the API server.
        caller: As a TokenReview returned it.
        attributes: ResourceAttributes of the request, such as verb, resource and namespace.

    Raises:
        KubeError: The API server does not answer, or refuses the review.
    """
    spec = {
        "user": caller.username,
        "uid": caller.uid,
        "groups": caller.groups,
        "extra": caller.extra,
        "resourceAttributes": dict(attributes),
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": spec,
    }
    return (await kube.create(_REVIEWS, review, _AccessReview)).status.allowed
