"""The review of an update: a pod whose unchanged manifest is applied again stays as it is."""

import msgspec
from msgspec import Struct

from linkwise.admission.decide.outcome import Outcome, Verdict
from linkwise.admission.patch.reapplied import UpdatedPod, left_as_it_is
from linkwise.cluster.objects.kube_object import KubeObject
from webhook.review import (
    GroupVersionKind,
    PodReview,
    ProtocolError,
    allow_unchanged,
    encode_response,
    read_object,
)

_POD = GroupVersionKind("", "v1", "Pod")


class _Request(KubeObject, frozen=True):
    kind: GroupVersionKind
    object: UpdatedPod
    old_object: UpdatedPod
    operation: str = ""
    sub_resource: str = ""


class _Review(Struct, frozen=True):
    request: _Request


_reviews = msgspec.json.Decoder(_Review)


def update_response(body: bytes, review: PodReview) -> bytes:
    """Return the response for an object that is not being created.

    Args:
        body: The AdmissionReview.
        review: The same, as it was read.

    Cost: linear in the body of the update of a pod.
    """
    if b'"operation":"UPDATE"' not in body:
        return allow_unchanged(review)
    try:
        request = read_object(body, _reviews).request
    except ProtocolError:
        # Not a pod, or one that the API server judges as it is.
        return allow_unchanged(review)
    if request.kind != _POD or request.operation != "UPDATE" or request.sub_resource:
        return allow_unchanged(review)
    patch = tuple(left_as_it_is(request.old_object, request.object))
    return encode_response(review, Outcome(Verdict.ALLOWED, patch=patch))
