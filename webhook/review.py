"""AdmissionReview, `admission.k8s.io/v1`: bytes in, bytes out.

Only the fields that are read are declared. The object is decoded only for the creation of a Pod, so
that reviews of other objects, by any webhook configuration, are answered, too.

Source: kubernetes/api, admission/v1/types.go; validation of responses: kubernetes/apiserver,
pkg/admission/plugin/webhook/request/admissionreview.go.
"""

from collections.abc import Iterable, Sequence
from typing import Annotated, Generic, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct

from linkwise.admission.decide.messages import (
    MAX_ERRORS,
    denial_message,
    denial_status,
    error_field,
    error_text,
    errors_of,
)
from linkwise.admission.decide.outcome import Outcome, Verdict
from linkwise.admission.operations import encode_patch
from linkwise.admission.read.work_limits import MAX_COMMAS
from linkwise.cluster.finding import printable
from linkwise.cluster.keys import MIRROR_POD, NODE_USER_PREFIX, NODES_GROUP
from linkwise.cluster.objects.pod import NewPod

T = TypeVar("T")

API_VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"

_Name = Annotated[str, Meta(max_length=1024)]


class ProtocolError(ValueError):
    """The body is not a valid AdmissionReview."""


class User(Struct, frozen=True, gc=False):
    """UserInfo: the authenticated user of a request."""

    username: str = ""
    groups: Sequence[str] = ()


class PodReview(Struct, frozen=True, gc=False):
    """The review of a pod, or of an object that passes unchanged."""

    uid: str
    namespace: str
    """Namespace of the request; that of the object may be empty."""
    name: str
    """Empty where the name is generated from `generateName`."""
    dry_run: bool
    pod: NewPod | None
    """None where the object passes unchanged: it is not the creation of a Pod, or a mirror pod."""
    unreadable: str = ""
    """Why the pod that is being created cannot be decoded; it is denied."""


class GroupVersionKind(Struct, frozen=True, gc=False):
    """GroupVersionKind of an object."""

    group: _Name = ""
    version: _Name = ""
    kind: _Name = ""


class _BaseRequest(Struct, frozen=True, rename="camel", gc=False):
    """AdmissionRequest without the object."""

    uid: _Name
    kind: GroupVersionKind
    operation: _Name = ""
    sub_resource: _Name = ""
    namespace: _Name = ""
    name: _Name = ""
    dry_run: bool | None = None


class AdmissionRequest(_BaseRequest, frozen=True):
    """AdmissionRequest with the encoded object."""

    object: Raw = Raw(b"null")


class _PodRequest(_BaseRequest, frozen=True, kw_only=True):
    """AdmissionRequest with a pod."""

    object: NewPod
    user_info: User = User()


_R = TypeVar("_R", bound=_BaseRequest)


class _ReviewOf(Struct, Generic[_R], frozen=True, rename="camel", gc=False):
    api_version: _Name
    kind: _Name
    request: _R | None = None


class _Cause(Struct, frozen=True):
    reason: str
    message: str
    field: str


class _Details(Struct, frozen=True):
    """StatusDetails: `kubectl` prints one line for each cause."""

    name: str
    kind: str
    causes: list[_Cause]


class _Status(Struct, frozen=True):
    status: str
    code: int
    reason: str
    message: str
    details: _Details


class _Response(Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    uid: str
    allowed: bool
    status: _Status | None = None
    patch: bytes = b""
    patch_type: str = ""
    warnings: tuple[str, ...] = ()
    audit_annotations: dict[str, str] | None = None


class _ReviewResponse(Struct, frozen=True, rename="camel", gc=False):
    api_version: str
    kind: str
    response: _Response


_POD = GroupVersionKind("", "v1", "Pod")
_requests = msgspec.json.Decoder(_ReviewOf[AdmissionRequest])
_pod_requests = msgspec.json.Decoder(_ReviewOf[_PodRequest])
_json = msgspec.json.Encoder()


def parse_pod_review(body: bytes) -> PodReview:
    """Return the review in a body.

    Raises:
        ProtocolError: The body is not an AdmissionReview v1 with a request.
    """
    try:
        _check_size(body)
        # Fast path: one pass over the bytes.
        request = _request(body, _pod_requests)
    except ProtocolError as error:
        head = _head(body)
        # Deny a pod that cannot be decoded: after an error response it would be created.
        reason = str(error) if _creates_pod(head) else ""
        return PodReview(head.uid, head.namespace, head.name, bool(head.dry_run), None, reason)
    pod = request.object if _creates_pod(request) and not _is_mirror_pod(request) else None
    return PodReview(request.uid, request.namespace, request.name, request.dry_run is True, pod)


def _check_size(body: bytes) -> None:
    """Raise an error for a body that would take too long to decode."""
    # Counting takes as long as decoding; a usual body is too short for so many.
    if len(body) > MAX_COMMAS and body.count(b",") > MAX_COMMAS:
        raise ProtocolError(f"the body has more than {MAX_COMMAS} values")


def _head(body: bytes) -> AdmissionRequest:
    """Return the request of a review, without its object where that is nested too deep to skip.

    An API server allows 10,000 levels in `managedFields`. It writes the object after all fields
    that are read here, and quotes in strings with a backslash.
    """
    try:
        return parse_request(body)
    except ProtocolError:
        start, key, _ = body.partition(b'"object":')
        if not key:
            raise
        return _request(start + key + b"null}}", _requests)


def parse_request(body: bytes) -> AdmissionRequest:
    """Return the request of a review of any object.

    Raises:
        ProtocolError: The body is not an AdmissionReview v1 with a request.
    """
    return _request(body, _requests)


def _request(body: bytes, decoder: msgspec.json.Decoder[_ReviewOf[_R]]) -> _R:
    review = read_object(body, decoder)
    request = review.request
    if review.api_version != API_VERSION or review.kind != KIND or request is None:
        got = printable(f"{review.api_version} {review.kind}")
        raise ProtocolError(f"not a request of {API_VERSION} {KIND}: got={got}")
    if not request.uid:
        raise ProtocolError("a request without uid cannot be answered")
    return request


def _creates_pod(request: _BaseRequest) -> bool:
    return request.kind == _POD and request.operation == "CREATE" and not request.sub_resource


def _is_mirror_pod(request: _PodRequest) -> bool:
    """Return whether the kubelet of a pod's own node creates it as the mirror of a static pod."""
    user, pod = request.user_info, request.object
    return (
        NODES_GROUP in user.groups
        and MIRROR_POD in pod.annotations
        and user.username == NODE_USER_PREFIX + pod.spec.node_name
    )


def read_object(body: bytes | Raw, decoder: msgspec.json.Decoder[T]) -> T:
    """Return the decoded object.

    Raises:
        ProtocolError: It cannot be decoded.
    """
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"the body cannot be read: {printable(str(error))}") from error


def allow_unchanged(review: PodReview | AdmissionRequest, warnings: tuple[str, ...] = ()) -> bytes:
    """Return the response that allows an object unchanged."""
    return _encode(_Response(review.uid, allowed=True, warnings=warnings))


def deny_invalid(
    request: AdmissionRequest, message: str, causes: Iterable[tuple[str, str]]
) -> bytes:
    """Return the response that denies an invalid object.

    Args:
        request: The request.
        message: All problems in one line.
        causes: Field and message of each problem.
    """
    details_causes = [_Cause("FieldValueInvalid", text, field) for field, text in causes]
    details = _Details(printable(request.name), request.kind.kind, details_causes)
    status = _Status("Failure", 422, "Invalid", message, details)
    return _encode(_Response(request.uid, allowed=False, status=status))


def encode_response(review: PodReview, outcome: Outcome) -> bytes:
    """Return the response for an outcome."""
    if outcome.verdict is Verdict.SKIPPED:
        return allow_unchanged(review)
    if outcome.verdict is Verdict.DENIED:
        return _encode(
            _Response(
                review.uid,
                allowed=False,
                status=_denial(review, outcome),
                warnings=outcome.warnings,
                audit_annotations=outcome.audit,
            )
        )
    return _encode(
        _Response(
            review.uid,
            allowed=True,
            patch=encode_patch(outcome.patch) if outcome.patch else b"",
            patch_type="JSONPatch" if outcome.patch else "",
            warnings=outcome.warnings,
            audit_annotations=outcome.audit,
        )
    )


def _denial(review: PodReview, outcome: Outcome) -> _Status:
    errors = errors_of(outcome.findings)
    code, reason = denial_status(errors)
    causes = [
        _Cause("FieldValueInvalid", error_text(error), error_field(error))
        for error in errors[:MAX_ERRORS]
    ]
    name = review.name or (review.pod.metadata.generate_name if review.pod else "")
    return _Status(
        "Failure", code, reason, denial_message(errors), _Details(printable(name), "Pod", causes)
    )


def _encode(response: _Response) -> bytes:
    return _json.encode(_ReviewResponse(API_VERSION, KIND, response))
