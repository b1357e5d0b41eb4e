"""`POST /v1/dry-run`: what becomes of a manifest in admission, why, and where it fits. Pure.

A manifest is read and judged by `list_namespaces` and `judge_body`, which run in a process of their
own; they return bytes for the process that answers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff

import msgspec
import yaml
from msgspec import Raw, Struct

from cluster.capacity import Capacity
from cluster.whatif_api import FitQuestion, FitResult, FitTemplate
from manifest.objects import objects_in
from manifest.template import PodTemplate
from manifest.value import InputError
from manifest.workload import Unjudged, expanded
from policy.snapshot import PolicySnapshot
from webhook.admit import admit
from webhook.fit_template import fit_template
from webhook.pod_report import pod_report

PATH = "/v1/dry-run"
MAX_TEMPLATES = 100
"""Of one request."""
MAX_NAMESPACES = 10
"""Of one request: the API server is asked about each."""
BODY_NAME = "body"
"""How complaints call what was sent: `body:3`."""


class _Dumper(yaml.CSafeDumper):
    """Writes what stands in two places twice, as people do."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
        return True


class DryRunResponse(Struct, frozen=True):
    """What the API answers."""

    pods: list[Raw]
    """One for each pod template: source (`body:<line>`), verdict, findings, patch, placement."""
    policy: dict[str, object]
    """Generation and digest."""
    warnings: tuple[str, ...]
    """What was passed over or guessed."""
    notes: tuple[str, ...]
    """What is not known, which is no fault of what was sent: why no placement is."""
    unjudged: tuple[Unjudged, ...]
    """What may make pods, and was not judged: its kind is not known. Also among `warnings`."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What was sent, read."""

    templates: tuple[PodTemplate, ...]
    warnings: tuple[str, ...]
    unjudged: tuple[Unjudged, ...]

    @property
    def namespaces(self) -> tuple[str, ...]:
        """All that pods would go to."""
        return tuple(dict.fromkeys(template.namespace for template in self.templates))


class DryRunResult(Struct, frozen=True):
    """What admission makes of a manifest, and what the scorer is to be asked."""

    pods: list[Raw]
    """As in the answer, but for their placement: the JSON of one object each."""
    asked: dict[int, FitTemplate]
    """By place in `pods`: of those for which a place is looked for."""
    policy: dict[str, object]
    warnings: tuple[str, ...]
    unjudged: tuple[Unjudged, ...]

    @property
    def question(self) -> FitQuestion:
        """What the scorer is to be asked."""
        return FitQuestion(list(self.asked.values()))


class _Failed(Struct, frozen=True, tag="failed"):
    """A manifest cannot be read; one line for people."""

    why: str


class _Namespaces(Struct, frozen=True, tag="namespaces"):
    names: tuple[str, ...]


class _Pods(Struct, frozen=True, tag="pods"):
    judged: DryRunResult


_read: msgspec.json.Decoder[_Failed | _Namespaces] = msgspec.json.Decoder(_Failed | _Namespaces)
_done: msgspec.json.Decoder[_Failed | _Pods] = msgspec.json.Decoder(_Failed | _Pods)


def list_namespaces(body: bytes, namespace: str) -> bytes:
    """Return the namespaces that the pods of a body go to, for `namespaces_in`."""
    try:
        return msgspec.json.encode(_Namespaces(read_manifest(body, namespace).namespaces))
    except InputError as error:
        return msgspec.json.encode(_Failed(str(error)))


def decode_namespaces(found: bytes) -> tuple[str, ...]:
    """Return the namespaces that were listed.

    Raises:
        InputError: The manifest cannot be read, or is too much; one line for people.
    """
    result = _read.decode(found)
    if isinstance(result, _Failed):
        raise InputError(result.why)
    return result.names


def dry_run_body(
    body: bytes,
    namespace: str,
    namespaces: Mapping[str, Mapping[str, str] | None],
    policy: PolicySnapshot,
    capacity: Capacity,
) -> bytes:
    """Return what admission makes of a body, for `judged_in`; arguments are those of `judge`."""
    try:
        manifest = read_manifest(body, namespace)
        found = dry_run(manifest, namespaces=namespaces, policy=policy, capacity=capacity)
    except InputError as error:
        return msgspec.json.encode(_Failed(str(error)))
    return msgspec.json.encode(_Pods(found))


def decode_result(found: bytes) -> DryRunResult:
    """Return what admission makes of a manifest.

    Raises:
        InputError: A pod has a field that Kubernetes would refuse.
    """
    result = _done.decode(found)
    if isinstance(result, _Failed):
        raise InputError(result.why)
    return result.judged


def read_manifest(body: bytes, namespace: str) -> Manifest:
    """Return the pod templates of a body.

    Args:
        body: YAML or JSON of Pods, workloads and Lists.
        namespace: Where those go that do not say so.

    Raises:
        InputError: It cannot be read, or is too much; one line for people.
    """
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        line = body.count(b"\n", 0, error.start) + 1
        raise InputError(f"{BODY_NAME}:{line}: this is no UTF-8 text.") from None
    templates, unjudged, warnings = expanded(objects_in(text, BODY_NAME), namespace)
    passed_over = (one.sentence for one in unjudged)
    manifest = Manifest(templates, (*passed_over, *warnings), unjudged)
    for count, most, what in (
        (len(templates), MAX_TEMPLATES, "pod templates"),
        (len(manifest.namespaces), MAX_NAMESPACES, "namespaces"),
    ):
        if count > most:
            raise InputError(f"{BODY_NAME}:1: {count} {what}; send at most {most} at once.")
    return manifest


def dry_run(
    manifest: Manifest,
    *,
    namespaces: Mapping[str, Mapping[str, str] | None],
    policy: PolicySnapshot,
    capacity: Capacity,
) -> DryRunResult:
    """Return what admission makes of each template.

    Args:
        manifest: What was sent.
        namespaces: Labels of each of its namespaces; None where there is no such namespace.
        policy: What administrators decided.
        capacity: What the cluster offers.

    Raises:
        InputError: A pod has a field that Kubernetes would refuse.

    Cost: some milliseconds a template, most of it for the difference.
    """
    pods, asked = [], {}
    for place, template in enumerate(manifest.templates):
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
        entry = pod_report(template, pod, typed, outcome)
        entry["diff"] = _diff(pod, entry["patched"])
        pods.append(Raw(msgspec.json.encode(entry)))
        if about := fit_template(template, entry["patched"], outcome):
            asked[place] = about
    decided = {"generation": policy.generation, "digest": policy.digest}
    return DryRunResult(pods, asked, decided, manifest.warnings, manifest.unjudged)


def encode_dry_run(judged: DryRunResult, fits: Sequence[FitResult] | str) -> bytes:
    """Return the answer, as JSON.

    Args:
        judged: What admission makes of it.
        fits: What becomes of the pods that are asked about, or why nobody knows.
    """
    placements: dict[int, FitResult] = {}
    notes: tuple[str, ...] = ()
    if isinstance(fits, str):
        notes = (f"placement is not known: {fits}.",)
    else:
        placements = dict(zip(judged.asked, fits, strict=True))
    pods = [_with_placement(pod, placements.get(i)) for i, pod in enumerate(judged.pods)]
    return msgspec.json.encode(
        DryRunResponse(pods, judged.policy, judged.warnings, notes, judged.unjudged)
    )


def _with_placement(pod: Raw, placement: FitResult | None) -> Raw:
    """Return a pod of the answer; it is not decoded for one more key, since it may be large."""
    return Raw(bytes(pod)[:-1] + b',"placement":' + msgspec.json.encode(placement) + b"}")


def _diff(before: object, after: object) -> str:
    """Return what changes, as `diff -u` of two YAML texts shows it; empty where nothing does."""
    texts = (_lines(before), _lines(after))
    return "".join(unified_diff(*texts, "received", "patched"))


def _lines(value: object) -> list[str]:
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False).splitlines(keepends=True)
