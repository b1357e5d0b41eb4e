"""Read the GPUs that a pod gets by ResourceClaims and ResourceClaimTemplates of its own.

Admission writes them into an annotation, since the pod does not have them: the number of GPUs of
each request, the selectors that each GPU has to satisfy, and the constraints of each claim.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta

from linkwise.cluster.cel.syntax import SyntaxRefused, parse
from linkwise.cluster.cel.values import DeviceFacts
from linkwise.cluster.finding import Code, Finding, Severity, quoted
from linkwise.cluster.keys import CLAIM_PREFIX, CLAIMED_GPUS, RESOURCES
from linkwise.cluster.objects.container import ResourceClaim
from linkwise.cluster.objects.pod import NewPod, NewPodSpec
from linkwise.cluster.requests.container_request import all_containers
from linkwise.cluster.requests.user_claims.claim_spec import (
    RESULTS_MAX,
    Asked,
    ClaimedDevices,
    Delegated,
)
from linkwise.cluster.requests.user_claims.device_class import SELECTORS_MAX
from linkwise.cluster.requests.user_claims.matching import (
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


class ClaimSource(NamedTuple):
    """The object that says what a claim of a pod asks for."""

    kind: str
    """ResourceClaimTemplate or ResourceClaim."""
    name: str

    @property
    def is_template(self) -> bool:
        """The claim is made from it, for one pod; else several pods may name the claim."""
        return self.kind == TEMPLATE

    def __str__(self) -> str:
        """Return it as messages name it."""
        return f"{'template' if self.is_template else 'claim'} {self.name}"


TEMPLATE, CLAIM = "ResourceClaimTemplate", "ResourceClaim"


class DeviceNeeds(NamedTuple):
    """What the GPUs of a pod have to satisfy besides their number."""

    selectors: tuple[str, ...] = ()
    """Expressions (CEL) for each of them."""
    matching: MatchedGPUs | None = None
    """The constraints for all of them together; None: there is none."""


NO_NEEDS = DeviceNeeds()


@dataclass(frozen=True, slots=True)
class UserClaims:
    """The GPUs that a pod gets by claims of its user, at least one."""

    claims: tuple[tuple[str, ClaimedDevices], ...]
    """What each claim asks for, by the name of the pod's reference to it or to its template; all
    have the same selectors."""

    @property
    def references(self) -> tuple[str, ...]:
        """The names of the references."""
        return tuple(reference for reference, _ in self.claims)

    def are_named(self, spec: NewPodSpec) -> bool:
        """Return whether a pod names them, so that other pods may name them, too."""
        references = {claim.name: source_of(claim) for claim in spec.resource_claims or ()}
        sources = filter(None, map(references.get, self.references))
        return any(not source.is_template for source in sources)

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
        """The annotation of the pod, from which `read_user_claims` reads it."""
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


def source_of(claim: ResourceClaim) -> ClaimSource | None:
    """Return the object that a reference of a pod names; None: a claim of Linkwise."""
    if claim.resource_claim_template_name:
        return ClaimSource(TEMPLATE, claim.resource_claim_template_name)
    name = claim.resource_claim_name or CLAIM_PREFIX
    return None if name.startswith(CLAIM_PREFIX) else ClaimSource(CLAIM, name)


def claim_sources(spec: NewPodSpec) -> frozenset[ClaimSource]:
    """Return the templates and claims that a pod names, other than those of Linkwise."""
    return frozenset(filter(None, map(source_of, spec.resource_claims or ())))


def uses_template(spec: NewPodSpec) -> bool:
    """Return whether a container refers to a claim that is made from a template."""
    made = {one.name for one in spec.resource_claims or () if one.resource_claim_template_name}
    return bool(made) and any(
        claim.name in made
        for container in all_containers(spec)
        for claim in (container.resources.claims if container.resources else None) or ()
    )


def claims_of_user(
    spec: NewPodSpec, asked: Mapping[ClaimSource, Asked]
) -> UserClaims | Delegated | None:
    """Return the GPUs that a pod gets by the claims that it brings; None: by none.

    Args:
        spec: Spec of the pod.
        asked: What its templates and claims ask for.
    """
    found = [
        (claim.name, source, what)
        for claim in spec.resource_claims or ()
        if (source := source_of(claim)) and (what := asked.get(source)) is not None
    ]
    for _, source, what in found:
        if isinstance(what, Delegated):
            return Delegated(f"{source}: {what.reason}")
    if not found:
        return None
    devices = [(name, what) for name, _, what in found if isinstance(what, ClaimedDevices)]
    if problem := _mixture(spec, [source for _, source, _ in found]):
        return Delegated(problem)
    if len({what.selectors for _, what in devices}) > 1:
        return Delegated("its claims have different selectors")
    return UserClaims(tuple(devices))


def _mixture(spec: NewPodSpec, sources: Sequence[ClaimSource]) -> str | None:
    """Return which GPUs a pod has that are not planned together with those of its claims."""
    named = [source for source in sources if not source.is_template]
    if named and len(named) < len(sources):
        return f"{named[0]}: other pods may share it, and not the claims of templates beside it"
    if len(set(named)) < len(named):
        return "it names one claim twice"
    resource = _resource(spec)
    return f"it asks for {resource}, too" if resource else None


def _resource(spec: NewPodSpec) -> str | None:
    """Return a resource of GPUs that a container names beside claims."""
    named = (
        name
        for container in all_containers(spec)
        for amounts in (container.limits, container.requests)
        for name in amounts
    )
    return next((name for name in named if name in RESOURCES), None)


def read_user_claims(pod: NewPod) -> tuple[UserClaims | None, Sequence[Finding]]:
    """Return the GPUs that a pod gets by claims of its user, as admission has written them.

    None: by none, or the annotation is unreadable.
    """
    text = pod.annotations.get(CLAIMED_GPUS)
    if text is None or not claim_sources(pod.spec):
        return None, ()
    claims = _decode(text)
    known = {claim.name for claim in pod.spec.resource_claims or () if source_of(claim)}
    if claims is not None and known.issuperset(claims.references):
        return claims, ()
    message = f"{quoted(text)} is no number of GPUs for each request of claims of the pod"
    fix = "remove the annotation: admission writes it"
    value = text[:_LONGEST]
    finding = Finding(Code.CLAIM_REFERENCE, Severity.ERROR, _ANNOTATION, value, message, fix)
    return None, [finding]


def _decode(text: str) -> UserClaims | None:
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
    return UserClaims(
        tuple(
            (name, ClaimedDevices(tuple(of), chosen, known.get(name, ())))
            for name, of in amounts.items()
        )
    )
