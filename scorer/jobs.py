"""A batch Job as the scorer keeps it: who owns it, and what an evicted pod means to it."""

from dataclasses import dataclass

import msgspec
from msgspec import Raw, Struct

from cluster.pod import Owner
from runtime.shallow import decode
from scorer.seen import controller_of


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
    pod_failure_policy: _FailurePolicy = _FailurePolicy()


class _Job(Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()


_jobs = msgspec.json.Decoder(_Job)


@dataclass(frozen=True, slots=True)
class Job:
    """What is kept of a Job."""

    uid: str
    above: Owner | None
    """Its own controller."""
    fails_when_evicted: bool
    """It counts an evicted pod as a failure."""


def read_job(raw: bytes | Raw) -> Job:
    """Return what is kept of a Job, from its JSON.

    Raises:
        msgspec.DecodeError: It is none.
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
    )
