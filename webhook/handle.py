"""The whole answer to one review, bytes to bytes, as a pure function; `app` counts and logs too."""

from collections.abc import Mapping

from cluster.capacity import Capacity
from policy.snapshot import PolicySnapshot
from webhook.admit import admit, unreadable
from webhook.review import parse, respond, untouched


def handle(
    body: bytes,
    *,
    namespaces: Mapping[str, Mapping[str, str]],
    policy: PolicySnapshot,
    capacity: Capacity,
) -> bytes:
    """Return the answer to one AdmissionReview.

    Args:
        body: The request's body.
        namespaces: Labels of every namespace seen so far, by name.
        policy: What administrators decided.
        capacity: What the cluster offers.

    Raises:
        ProtocolError: The body is not an AdmissionReview v1 with a request.
    """
    review = parse(body)
    if review.unreadable:
        return respond(review, unreadable(review.unreadable))
    if review.pod is None:
        return untouched(review)
    outcome = admit(
        review.pod,
        namespace=review.namespace,
        namespace_labels=namespaces.get(review.namespace),
        policy=policy,
        capacity=capacity,
    )
    return respond(review, outcome)
