"""Authorize callers of the dry-run API by SubjectAccessReviews."""

from msgspec import Struct

from runtime.http.authentication import UserInfo
from runtime.kube.client import Kube

_ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class _Authorization(Struct, frozen=True):
    allowed: bool = False


class _AccessReview(Struct, frozen=True):
    status: _Authorization = _Authorization()


async def may_create_pods(kube: Kube, caller: UserInfo, namespace: str) -> bool:
    """Return whether a caller may create pods in a namespace.

    Raises:
        KubeError: The API server cannot be reached, or refuses.
    """
    attributes = {"namespace": namespace, "verb": "create", "version": "v1", "resource": "pods"}
    spec = {
        "user": caller.username,
        "uid": caller.uid,
        "groups": caller.groups,
        "extra": caller.extra,
        "resourceAttributes": attributes,
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": spec,
    }
    return (await kube.create(_ACCESS, review, _AccessReview)).status.allowed
