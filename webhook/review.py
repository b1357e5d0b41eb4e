"""AdmissionReview, `admission.k8s.io/v1`: bytes in, bytes out.

Only the fields that are read are named. The object is decoded when it is a Pod that is being
created, since a registration that sends anything else must not break it.

Source: kubernetes/api, admission/v1/types.go; how an API server judges an answer:
kubernetes/apiserver, pkg/admission/plugin/webhook/request/admissionreview.go.
"""

from collections.abc import Iterable, Sequence
from typing import Annotated, Generic, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct

from cluster.keys import MIRROR_POD, NODE_USER_PREFIX, NODES_GROUP
from cluster.pod import NewPod
from webhook.messages import denial_message, denial_status, error_text, errors_of, printable
from webhook.outcome import Outcome, Verdict
from webhook.patch import encode_patch

T = TypeVar("T")

API_VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"

_Name = Annotated[str, Meta(max_length=1024)]


class ProtocolError(ValueError):
    """The body is not an AdmissionReview that can be answered."""


class User(Struct, frozen=True, gc=False):
    """Who makes a request, as the API server knows them."""

    username: str = ""
    groups: Sequence[str] = ()


class PodReview(Struct, frozen=True, gc=False):
    """What an API server asks."""

    uid: str
    namespace: str
    """The request's, which is binding; the object's may be empty."""
    name: str
    """Empty where `generateName` will make it."""
    dry_run: bool
    pod: NewPod | None
    """None when there is nothing to judge: no Pod is created, or a node mirrors one of its own.
    The answer is that it may pass as it is, unless it is `unreadable`."""
    unreadable: str = ""
    """Why the pod that is being created cannot be read."""


class GroupVersionKind(Struct, frozen=True, gc=False):
    """What an object is."""

    group: _Name = ""
    version: _Name = ""
    kind: _Name = ""


class _Request(Struct, frozen=True, rename="camel", gc=False):
    """The request of a review, without its object."""

    uid: _Name
    kind: GroupVersionKind
    operation: _Name = ""
    sub_resource: _Name = ""
    namespace: _Name = ""
    name: _Name = ""
    dry_run: bool | None = None
    user_info: User = User()


class AdmissionRequest(_Request, frozen=True):
    """The request of a review, its object still as it came."""

    object: Raw = Raw(b"null")


class _AboutPod(_Request, frozen=True, kw_only=True):
    """The request of a review of a pod."""

    object: NewPod


_R = TypeVar("_R", bound=_Request)


class _Question(Struct, Generic[_R], frozen=True, rename="camel", gc=False):
    api_version: _Name
    kind: _Name
    request: _R | None = None


class _Cause(Struct, frozen=True):
    reason: str
    message: str
    field: str


class _Details(Struct, frozen=True):
    """With causes, `kubectl` prints one line for each of them, as for its own validation."""

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


class _Answer(Struct, frozen=True, rename="camel", gc=False):
    api_version: str
    kind: str
    response: _Response


# In Python 3.11 a member of an enum takes ten times as long to look up as a name.
_SKIPPED, _DENIED = Verdict.SKIPPED, Verdict.DENIED
_POD = GroupVersionKind("", "v1", "Pod")
_questions = msgspec.json.Decoder(_Question[AdmissionRequest])
_about_pods = msgspec.json.Decoder(_Question[_AboutPod])
_json = msgspec.json.Encoder()


def parse_pod_review(body: bytes) -> PodReview:
    """Return what the body asks.

    Raises:
        ProtocolError: It is not an AdmissionReview v1 with a request.
    """
    try:
        # Nearly every body; one pass over the bytes is faster than setting the object apart first.
        about = _request(body, _about_pods)
    except ProtocolError as error:
        other = _head(body)
        # A pod that cannot be judged is denied: an error would let it pass.
        why = str(error) if _creates_pod(other) else ""
        return PodReview(other.uid, other.namespace, other.name, bool(other.dry_run), None, why)
    pod = about.object if _creates_pod(about) and not _is_mirror(about) else None
    return PodReview(about.uid, about.namespace, about.name, about.dry_run is True, pod)


def _head(body: bytes) -> AdmissionRequest:
    """Return the request of a review, without its object where that cannot even be skipped.

    It cannot where it is nested too deep: an API server keeps 10,000 levels in `managedFields`. It
    writes the object behind all that is read here, and quotes within texts with a backslash.
    """
    try:
        return parse_request(body)
    except ProtocolError:
        head, key, _ = body.partition(b'"object":')
        if not key:
            raise
        return _request(head + key + b"null}}", _questions)


def parse_request(body: bytes) -> AdmissionRequest:
    """Return the request of a review of whatever kind.

    Raises:
        ProtocolError: The body is not an AdmissionReview v1 with a request.
    """
    return _request(body, _questions)


def _request(body: bytes, decoder: msgspec.json.Decoder[_Question[_R]]) -> _R:
    question = read_object(body, decoder)
    request = question.request
    if question.api_version != API_VERSION or question.kind != KIND or request is None:
        got = printable(f"{question.api_version} {question.kind}")
        raise ProtocolError(f"not a request of {API_VERSION} {KIND}: got={got}")
    if not request.uid:
        raise ProtocolError("a request without uid cannot be answered")
    return request


def _creates_pod(request: _Request) -> bool:
    return request.kind == _POD and request.operation == "CREATE" and not request.sub_resource


def _is_mirror(about: _AboutPod) -> bool:
    """Tell whether a pod mirrors a static pod: only the kubelet of its node may say so."""
    user, pod = about.user_info, about.object
    return (
        MIRROR_POD in pod.annotations
        and NODES_GROUP in user.groups
        and user.username == NODE_USER_PREFIX + pod.spec.node_name
    )


def read_object(body: bytes | Raw, decoder: msgspec.json.Decoder[T]) -> T:
    """Return what bytes hold.

    Raises:
        ProtocolError: They hold something else.
    """
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"the body cannot be read: {printable(str(error))}") from error


def allow_unchanged(review: PodReview | AdmissionRequest, warnings: tuple[str, ...] = ()) -> bytes:
    """Return the answer that lets the object pass as it is."""
    return _encode(_Response(review.uid, allowed=True, warnings=warnings))


def deny_invalid(asked: AdmissionRequest, message: str, causes: Iterable[tuple[str, str]]) -> bytes:
    """Return the answer that an object is invalid.

    Args:
        asked: What was asked.
        message: All that is wrong, in one line.
        causes: Field and message of each problem.
    """
    each = [_Cause("FieldValueInvalid", text, field) for field, text in causes]
    details = _Details(printable(asked.name), asked.kind.kind, each)
    status = _Status("Failure", 422, "Invalid", message, details)
    return _encode(_Response(asked.uid, allowed=False, status=status))


def encode_response(review: PodReview, outcome: Outcome) -> bytes:
    """Return the answer that an outcome gives."""
    if outcome.verdict is _SKIPPED:
        return allow_unchanged(review)
    if outcome.verdict is _DENIED:
        return _encode(
            _Response(
                review.uid,
                allowed=False,
                status=_refusal(review, outcome),
                warnings=outcome.warnings,
                audit_annotations=outcome.audit,
            )
        )
    steps = outcome.patch
    return _encode(
        _Response(
            review.uid,
            allowed=True,
            patch=encode_patch(steps) if steps else b"",
            patch_type="JSONPatch" if steps else "",
            warnings=outcome.warnings,
            audit_annotations=outcome.audit,
        )
    )


def _refusal(review: PodReview, outcome: Outcome) -> _Status:
    errors = errors_of(outcome.findings)
    code, reason = denial_status(errors)
    causes = [
        _Cause("FieldValueInvalid", error_text(error), printable(error.field)) for error in errors
    ]
    name = review.name or (review.pod.metadata.generate_name if review.pod else "")
    return _Status(
        "Failure", code, reason, denial_message(errors), _Details(printable(name), "Pod", causes)
    )


def _encode(response: _Response) -> bytes:
    return _json.encode(_Answer(API_VERSION, KIND, response))
