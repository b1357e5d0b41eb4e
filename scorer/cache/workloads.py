"""Batch Jobs and StatefulSets as the scorer keeps them: owners, and what an eviction costs."""

from dataclasses import dataclass

import msgspec
from msgspec import Raw, Struct

from cluster.pod import Owner
from runtime.kube.decode import decode
from scorer.gang.owners import GROUPS
from scorer.gang.pod_info import controller_of


class _Metadata(Struct, frozen=True, rename="camel"):
    uid: str = ""
    owner_references: list[Owner] | None = None


class _Condition(Struct, frozen=True):
    type: str = ""


class _Rule(Struct, frozen=True, rename="camel"):
    action: str = ""
    on_pod_conditions: list[_Condition] | None = None


class _FailurePolicy(Struct, frozen=True):
    rules: list[_Rule] | None = None


class _Spec(Struct, frozen=True, rename="camel"):
    suspend: bool | None = None
    pod_failure_policy: _FailurePolicy = _FailurePolicy()


class _Job(Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()


class _SetSpec(Struct, frozen=True):
    replicas: int | None = None


class _StatefulSet(Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: _SetSpec = _SetSpec()


_sets = msgspec.json.Decoder(_StatefulSet)
_jobs = msgspec.json.Decoder(_Job)


@dataclass(frozen=True, slots=True)
class StatefulSet:
    """What is kept of a StatefulSet."""

    uid: str
    above: Owner | None
    """The leader that it makes the workers of, or the LeaderWorkerSet that it makes the leaders
    of; None where it has another controller: its own size is the gang's then."""
    is_suspended: bool = False
    """It is scaled to 0, so that it makes no pods for now."""


def read_stateful_set(raw: bytes | Raw) -> StatefulSet:
    """Return what is kept of a StatefulSet, from its JSON.

    Raises:
        msgspec.DecodeError: It is none.
    """
    found = decode(raw, _sets)
    metadata = found.metadata
    above = above_set(controller_of(metadata.owner_references or ()))
    return StatefulSet(metadata.uid, above, is_suspended=found.spec.replicas == 0)


def above_set(controller: Owner | None) -> Owner | None:
    """Return the controller of a StatefulSet where the gang's size stands there."""
    return controller if controller and controller.kind in {"Pod", GROUPS} else None


@dataclass(frozen=True, slots=True)
class Job:
    """What is kept of a Job."""

    uid: str
    above: Owner | None
    """Its own controller."""
    fails_when_evicted: bool
    """It counts an evicted pod as a failure."""
    is_suspended: bool = False
    """It makes no pods for now, and deletes those that do not run to their end."""


def read_job(raw: bytes | Raw) -> Job:
    """Return what is kept of a Job, from its JSON.

    Raises:
        msgspec.DecodeError: The JSON is not that of a Job.
    """
    found = decode(raw, _jobs)
    return Job(
        uid=found.metadata.uid,
        above=controller_of(found.metadata.owner_references or ()),
        fails_when_evicted=not any(
            rule.action == "Ignore" and condition.type == "DisruptionTarget"
            for rule in found.spec.pod_failure_policy.rules or ()
            for condition in rule.on_pod_conditions or ()
        ),
        is_suspended=bool(found.spec.suspend),
    )
