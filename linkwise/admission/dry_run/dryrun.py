"""`POST /v1/dry-run`: admission and placement of a manifest's pods, without creating them. Pure.

`list_namespaces` and `dry_run_body` read manifests in a child process. They return bytes, which the
main process decodes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff

import msgspec
import yaml
from msgspec import Struct

from linkwise.admission.decide.admit import admit
from linkwise.admission.dry_run.fit_template import fit_template
from linkwise.admission.dry_run.pod_report import pod_report
from linkwise.cluster.nodes.capacity import Capacity
from linkwise.cluster.whatif_api import FitRequest, FitResult, FitTemplate
from linkwise.manifest.objects import objects_in
from linkwise.manifest.template import PodTemplate
from linkwise.manifest.value import InputError
from linkwise.manifest.workload import NO_PODS, Unjudged, expanded
from linkwise.policy.snapshot import PolicySnapshot

PATH = "/v1/dry-run"
MAX_TEMPLATES = 100
"""Pod templates of one request."""
MAX_NAMESPACES = 10
"""Namespaces of one request: each costs an access review."""
BODY_NAME = "body"
"""Name of the request's body in messages, as in `body:3`."""


class _Dumper(yaml.CSafeDumper):
    """Writes a repeated value again, without YAML anchors."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
        return True


class DryRunResponse(Struct, frozen=True):
    """The body of the response."""

    pods: list[dict[str, object]]
    """One for each pod template: source (`body:<line>`), verdict, findings, patch, placement."""
    policy: dict[str, object]
    """Generation and digest."""
    warnings: tuple[str, ...]
    """Skipped objects, and defaults that were assumed."""
    notes: tuple[str, ...]
    """Unknown parts for which the manifest is not the cause, such as an unknown placement."""
    unjudged: tuple[Unjudged, ...]
    """Objects of unknown kinds that may create pods, without a verdict. Also in `warnings`."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The objects of a request."""

    templates: tuple[PodTemplate, ...]
    warnings: tuple[str, ...]
    unjudged: tuple[Unjudged, ...]

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Distinct namespaces of the pods."""
        return tuple(dict.fromkeys(template.namespace for template in self.templates))


class DryRunResult(Struct, frozen=True):
    """The admission of a manifest, and the templates whose placement is requested."""

    pods: list[dict[str, object]]
    """As in the response, without placement."""
    fit_templates: dict[int, FitTemplate]
    """Templates for the scorer's fit API, by index in `pods`."""
    policy: dict[str, object]
    warnings: tuple[str, ...]
    unjudged: tuple[Unjudged, ...]

    @property
    def fit_request(self) -> FitRequest:
        """The request to the scorer's fit API."""
        return FitRequest(list(self.fit_templates.values()))


class _Failed(Struct, frozen=True, tag="failed"):
    """The manifest is invalid."""

    reason: str
    """One line for users."""


class _Namespaces(Struct, frozen=True, tag="namespaces"):
    names: tuple[str, ...]


class _Pods(Struct, frozen=True, tag="pods"):
    result: DryRunResult


_namespaces: msgspec.json.Decoder[_Failed | _Namespaces]
_namespaces = msgspec.json.Decoder(_Failed | _Namespaces)
_results: msgspec.json.Decoder[_Failed | _Pods] = msgspec.json.Decoder(_Failed | _Pods)


def list_namespaces(body: bytes, namespace: str) -> bytes:
    """Return the namespaces of a body's pods, encoded for `decode_namespaces`."""
    try:
        return msgspec.json.encode(_Namespaces(read_manifest(body, namespace).namespaces))
    except InputError as error:
        return msgspec.json.encode(_Failed(str(error)))


def decode_namespaces(encoded: bytes) -> tuple[str, ...]:
    """Return the namespaces that `list_namespaces` has encoded.

    Raises:
        InputError: The manifest is invalid, or exceeds a limit; one line for users.
    """
    namespaces = _namespaces.decode(encoded)
    if isinstance(namespaces, _Failed):
        raise InputError(namespaces.reason)
    return namespaces.names


def dry_run_body(
    body: bytes,
    namespace: str,
    namespaces: Mapping[str, Mapping[str, str] | None],
    policy: PolicySnapshot,
    capacity: Capacity,
) -> bytes:
    """Return the dry run of a body, encoded for `decode_result`; arguments as in `dry_run`."""
    try:
        manifest = read_manifest(body, namespace)
        result = dry_run(manifest, namespaces=namespaces, policy=policy, capacity=capacity)
    except InputError as error:
        return msgspec.json.encode(_Failed(str(error)))
    return msgspec.json.encode(_Pods(result))


def decode_result(encoded: bytes) -> DryRunResult:
    """Return the result that `dry_run_body` has encoded.

    Raises:
        InputError: A pod has a field that Kubernetes would refuse.
    """
    decoded = _results.decode(encoded)
    if isinstance(decoded, _Failed):
        raise InputError(decoded.reason)
    return decoded.result


def read_manifest(body: bytes, namespace: str) -> Manifest:
    """Return the pod templates of a body.

    Args:
        body: YAML or JSON of Pods, workloads and Lists.
        namespace: Namespace of objects that do not name one.

    Raises:
        InputError: It is invalid, or exceeds a limit; one line for users.
    """
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        line = body.count(b"\n", 0, error.start) + 1
        raise InputError(f"{BODY_NAME}:{line}: this is no UTF-8 text.") from None
    expansion = expanded(objects_in(text, BODY_NAME), namespace)
    if expansion.invalid:
        raise InputError(expansion.invalid[0])
    templates, unjudged = expansion.templates, expansion.unjudged
    skipped = (each.sentence for each in unjudged)
    warnings = (*skipped, *expansion.warnings, *(() if templates or unjudged else (NO_PODS,)))
    manifest = Manifest(templates, warnings, unjudged)
    for count, maximum, what in (
        (len(templates), MAX_TEMPLATES, "pod templates"),
        (len(manifest.namespaces), MAX_NAMESPACES, "namespaces"),
    ):
        if count > maximum:
            raise InputError(f"{BODY_NAME}:1: {count} {what}; send at most {maximum} at once.")
    return manifest


def dry_run(
    manifest: Manifest,
    *,
    namespaces: Mapping[str, Mapping[str, str] | None],
    policy: PolicySnapshot,
    capacity: Capacity,
) -> DryRunResult:
    """Return the admission of each template.

    Args:
        manifest: The objects of the request.
        namespaces: Labels of each namespace; None where it does not exist.
        policy: Policy and profiles.
        capacity: Maximum capacity of the nodes.

    Raises:
        InputError: A pod has a field that Kubernetes would refuse.

    Cost: some milliseconds a template, most of it for the diff.
    """
    pods, fit_templates = [], {}
    for index, template in enumerate(manifest.templates):
        pod = template.pod()
        typed = template.read(pod)
        outcome = admit(
            typed,
            namespace=template.namespace,
            namespace_labels=namespaces[template.namespace],
            policy=policy,
            capacity=capacity,
            workload=template.workload,
        )
        report = pod_report(template, pod, typed, outcome)
        report["diff"] = _diff(pod, report["patched"])
        pods.append(report)
        if fit := fit_template(template, report["patched"], outcome):
            fit_templates[index] = fit
    version = {"generation": policy.generation, "digest": policy.digest}
    return DryRunResult(pods, fit_templates, version, manifest.warnings, manifest.unjudged)


def encode_dry_run(result: DryRunResult, fits: Sequence[FitResult] | str) -> bytes:
    """Return the response, as JSON.

    Args:
        result: The admission of the manifest.
        fits: Placements in the order of `fit_templates`, or why they are not known.
    """
    placements: dict[int, FitResult] = {}
    notes: tuple[str, ...] = ()
    if isinstance(fits, str):
        notes = (f"placement is not known: {fits}.",)
    else:
        placements = dict(zip(result.fit_templates, fits, strict=True))
    pods = [{**pod, "placement": placements.get(i)} for i, pod in enumerate(result.pods)]
    response = DryRunResponse(pods, result.policy, result.warnings, notes, result.unjudged)
    return msgspec.json.encode(response)


def _diff(before: object, after: object) -> str:
    """Return the changes as `diff -u` of two YAML texts; empty where there are none."""
    texts = (_lines(before), _lines(after))
    return "".join(unified_diff(*texts, "received", "patched"))


def _lines(value: object) -> list[str]:
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False).splitlines(keepends=True)
