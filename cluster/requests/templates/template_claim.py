"""Read the GPUs that a pod gets by ResourceClaimTemplates of its own.

Admission writes them into an annotation, since the pod does not have them: the number of GPUs of
each request, the selectors that each GPU has to satisfy, and the constraints of each claim.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta

from cluster.cel.syntax import SyntaxRefused, parse
from cluster.cel.values import DeviceFacts
from cluster.finding import Code, Finding, Severity, quoted
from cluster.keys import CLAIMED_GPUS, RESOURCES
from cluster.objects.pod import NewPod, NewPodSpec
from cluster.requests.container_request import all_containers
from cluster.requests.templates.claim_spec import (
    RESULTS_MAX,
    Asked,
    ClaimedDevices,
    LeftToScheduler,
)
from cluster.requests.templates.device_class import SELECTORS_MAX
from cluster.requests.templates.matching import (
    Amounts,
    MatchedGPUs,
    groups_of,
    matched_gpus,
    matching_sets,
    read_constraints,
)

_ANNOTATION = f"metadata.annotations[{CLAIMED_GPUS}]"
_LONGEST = 65536
"""The annotation of a claim with as many requests, selectors and constraints as it may have is
shorter [characters]."""
_SELECTORS, _CONSTRAINTS = "selectors", "constraints"
"""Entries of the annotation that have no reference to a claim, and so no slash."""
_Constraints: TypeAlias = dict[str, list[object]]
"""By reference to a claim."""
_entries = msgspec.json.Decoder(
    dict[
        str,
        Annotated[int, Meta(ge=1, le=RESULTS_MAX)]
        | Annotated[list[str], Meta(max_length=SELECTORS_MAX)]
        | _Constraints,
    ]
)


class DeviceNeeds(NamedTuple):
    """What the GPUs of a pod have to satisfy besides their number."""

    selectors: tuple[str, ...] = ()
    """Expressions (CEL) for each of them."""
    matching: MatchedGPUs | None = None
    """The constraints for all of them together; None: there is none."""


NO_NEEDS = DeviceNeeds()


@dataclass(frozen=True, slots=True)
class TemplateClaims:
    """The GPUs that a pod gets by claims that are made from templates, at least one."""

    claims: tuple[tuple[str, ClaimedDevices], ...]
    """What each claim asks for, by the name of the pod's reference to its template; all have the
    same selectors."""

    @property
    def references(self) -> tuple[str, ...]:
        """The names of the references."""
        return tuple(reference for reference, _ in self.claims)

    @property
    def gpus(self) -> int:
        """The GPUs of all claims."""
        return sum(devices.gpus for _, devices in self.claims)

    @property
    def selectors(self) -> tuple[str, ...]:
        """Expressions (CEL) that each of the GPUs has to satisfy."""
        return self.claims[0][1].selectors

    @property
    def amounts(self) -> Amounts:
        """The GPUs of each request, by `reference/request`."""
        return tuple(
            (f"{reference}/{name}", count)
            for reference, devices in self.claims
            for name, count in devices.amounts
        )

    @property
    def needs(self) -> DeviceNeeds:
        """What all its GPUs have to satisfy."""
        matched: dict[frozenset[str], frozenset[str]] = {}
        for reference, devices in self.claims:
            for one in devices.constraints:
                requests = one.requests or tuple(dict(devices.amounts))
                names = frozenset(f"{reference}/{name}" for name in requests)
                matched[names] = matched.get(names, frozenset()) | {one.match_attribute}
        matching = matched_gpus(self.amounts, matched) if matched else None
        return DeviceNeeds(self.selectors, matching)

    def divided(self, gpus: Sequence[DeviceFacts]) -> Mapping[str, list[int]] | None:
        """Divide GPUs among the requests so that the constraints hold.

        Args:
            gpus: As many as the claims ask for.

        Returns:
            By `reference/request`: indices in `gpus`. None: the constraints do not hold.
        """
        matching, amounts = self.needs.matching, self.amounts
        order: Sequence[int] | None = range(len(gpus))
        if matching is not None:
            groups, every = groups_of(matching.all_attributes, gpus), (1 << len(gpus)) - 1
            order = matching_sets(matching, groups, every).get(every)
            amounts = matching.all_requests
        if order is None:
            return None
        rest = iter(order)
        return {name: list(islice(rest, count)) for name, count in amounts}

    @property
    def annotation(self) -> str:
        """The annotation of the pod, from which `read_template_claims` reads it."""
        entries: dict[str, object] = dict(self.amounts)
        constraints = {
            reference: devices.constraints
            for reference, devices in self.claims
            if devices.constraints
        }
        if self.selectors:
            entries[_SELECTORS] = self.selectors
        if constraints:
            entries[_CONSTRAINTS] = constraints
        return msgspec.json.encode(entries).decode()


def template_names(spec: NewPodSpec) -> frozenset[str]:
    """Return the templates that a pod names."""
    names = (claim.resource_claim_template_name for claim in spec.resource_claims or ())
    return frozenset(filter(None, names))


def uses_template(spec: NewPodSpec) -> bool:
    """Return whether a container refers to a claim that is made from a template."""
    made = {one.name for one in spec.resource_claims or () if one.resource_claim_template_name}
    return bool(made) and any(
        claim.name in made
        for container in all_containers(spec)
        for claim in (container.resources.claims if container.resources else None) or ()
    )


def claims_from_templates(
    spec: NewPodSpec, asked: Mapping[str, Asked]
) -> TemplateClaims | LeftToScheduler | None:
    """Return the GPUs that a pod gets by the claims of templates; None: by none.

    Args:
        spec: Spec of the pod.
        asked: What templates ask for, by name.
    """
    claims = spec.resource_claims or ()
    found = [
        (claim, what)
        for claim in claims
        if (what := asked.get(claim.resource_claim_template_name or "")) is not None
    ]
    for claim, what in found:
        if isinstance(what, LeftToScheduler):
            return LeftToScheduler(f"template {claim.resource_claim_template_name}: {what.reason}")
    if not found:
        return None
    if named := next(filter(None, (claim.resource_claim_name for claim in claims)), None):
        return LeftToScheduler(f"it names claim {quoted(named)}, which other pods may use, too")
    if resource := _resource(spec):
        return LeftToScheduler(f"it asks for {resource}, too")
    devices = [(claim.name, what) for claim, what in found if isinstance(what, ClaimedDevices)]
    if len({what.selectors for _, what in devices}) > 1:
        return LeftToScheduler("its claims have different selectors")
    return TemplateClaims(tuple(devices))


def _resource(spec: NewPodSpec) -> str | None:
    """Return a resource of GPUs that a container names beside claims."""
    named = (
        name
        for container in all_containers(spec)
        for amounts in (container.limits, container.requests)
        for name in amounts
    )
    return next((name for name in named if name in RESOURCES), None)


def read_template_claims(pod: NewPod) -> tuple[TemplateClaims | None, Sequence[Finding]]:
    """Return the GPUs that a pod gets by claims of templates, as admission has written them.

    None: by none, or the annotation is unreadable.
    """
    text = pod.annotations.get(CLAIMED_GPUS)
    if text is None or not template_names(pod.spec):
        return None, ()
    claims = _decode(text)
    made = {one.name for one in pod.spec.resource_claims or () if one.resource_claim_template_name}
    if claims is not None and made.issuperset(claims.references):
        return claims, ()
    message = f"{quoted(text)} is no number of GPUs for each request of claims of the pod"
    fix = "remove the annotation: admission writes it"
    value = text[:_LONGEST]
    finding = Finding(Code.CLAIM_REFERENCE, Severity.ERROR, _ANNOTATION, value, message, fix)
    return None, [finding]


def _decode(text: str) -> TemplateClaims | None:
    """Return the claims of an annotation; None if it cannot be read."""
    try:
        entries = _entries.decode(text) if len(text) <= _LONGEST else {}
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    selectors, constraints = entries.pop(_SELECTORS, []), entries.pop(_CONSTRAINTS, {})
    if not entries or not isinstance(selectors, list) or not isinstance(constraints, dict):
        return None
    if any(isinstance(parse(one), SyntaxRefused) for one in selectors):
        return None
    amounts: dict[str, list[tuple[str, int]]] = {}
    for name, count in entries.items():
        reference, _, request = name.partition("/")
        if not isinstance(count, int):
            return None
        amounts.setdefault(reference, []).append((request, count))
    matched = {
        reference: read_constraints(some, frozenset(dict(amounts.get(reference, ()))))
        for reference, some in constraints.items()
    }
    known = {name: found for name, found in matched.items() if not isinstance(found, str)}
    if len(known) < len(matched) or not amounts.keys() >= known.keys():
        return None
    chosen = tuple(selectors)
    return TemplateClaims(
        tuple(
            (name, ClaimedDevices(tuple(of), chosen, known.get(name, ())))
            for name, of in amounts.items()
        )
    )
