"""Admission of one pod, as tests ask for it, and what they look at in its answer."""

import json
from types import MappingProxyType

import jsonpatch
import msgspec

from cluster import keys
from cluster.capacity import Capacity
from cluster.pod import Pod
from policy.document import parse_policy
from policy.profile import parse_profiles
from policy.snapshot import PolicySnapshot
from webhook.admit import admit, deny_unreadable
from webhook.outcome import Verdict
from webhook.review import allow_unchanged, encode_response, parse_pod_review

# A node gives out replicas that Linkwise chooses.
SLICED = Capacity(nodes=1, whole=8, replicas=8)
NO_POLICY, NO_CAPACITY, NO_LABELS = PolicySnapshot(), Capacity(), MappingProxyType({})
GATE = {"name": keys.GANG}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
COMPUTE = {keys.GPU_MEM: 2, keys.GPU_CORE: 30}
DRIVER_PROFILE = {
    "name": "gpu-hpn-driver",
    "objectSelector": {"matchLabels": {keys.COMPUTE_CLASS: "gpu-hpn"}},
    "effect": {"labels": {keys.DRIVER_VERSION: "1.5.0"}},
}
TIME_SLICING = f"""
sharing:
  groups:
  - config:
      sharing:
        timeSlicing:
          renameByDefault: true
          failRequestsGreaterThanOne: true
          resources: [{{name: {keys.NVIDIA_GPU}, replicas: 4}}]
"""
ARENA = {
    keys.GPU_TOPOLOGY: "job",
    keys.GPU_TOPOLOGY_REPLICA: "4",
    keys.POD_GROUP_NAME: "job",
    keys.POD_GROUP_MIN_AVAILABLE: "4",
}


def a_snapshot(policy="", profiles=()):
    return PolicySnapshot(parse_policy(policy), parse_profiles(json.dumps(list(profiles))))


def judged(pod, policy=NO_POLICY, *, namespace=NO_LABELS, capacity=NO_CAPACITY, workload=None):
    """Return the outcome for a pod; `namespace`: its labels, None where nobody knows them."""
    return admit(
        msgspec.convert(pod, Pod),
        namespace="default",
        namespace_labels=namespace,
        policy=policy,
        capacity=capacity,
        workload=workload,
    )


def handle(body, *, namespaces, policy, capacity):
    """Return the answer to one AdmissionReview, bytes to bytes, without a server.

    Raises:
        ProtocolError: The body is not an AdmissionReview v1 with a request.
    """
    review = parse_pod_review(body)
    if review.unreadable:
        return encode_response(review, deny_unreadable(review.unreadable))
    if review.pod is None:
        return allow_unchanged(review)
    outcome = admit(
        review.pod,
        namespace=review.namespace,
        namespace_labels=namespaces.get(review.namespace),
        policy=policy,
        capacity=capacity,
    )
    return encode_response(review, outcome)


def patched(pod, outcome):
    return jsonpatch.apply_patch(pod, [step.wire() for step in outcome.patch])


def admitted(pod, policy=NO_POLICY, **given):
    """Return the pod after an admission that must let it pass."""
    outcome = judged(pod, policy, **given)
    assert outcome.verdict is Verdict.ALLOWED, outcome.findings
    return patched(pod, outcome)


def codes(outcome, severity=None):
    return [one.code for one in outcome.findings if severity in {None, one.severity}]


def requirements_of(pod):
    terms = pod["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    (term,) = terms
    return {one["key"]: one["values"] for one in term["matchExpressions"]}


def env_of(pod, container=0):
    entries = pod["spec"]["containers"][container].get("env", [])
    return {one["name"]: one.get("valueFrom", one.get("value")) for one in entries}
