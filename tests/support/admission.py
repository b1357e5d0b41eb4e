"""Admission of one pod for tests, and parts of its outcome."""

import json
from types import MappingProxyType

import jsonpatch
import msgspec

from linkwise.admission.decide.admit import admit, deny_unreadable
from linkwise.admission.decide.outcome import Verdict
from linkwise.cluster import keys
from linkwise.cluster.nodes.capacity import Capacity
from linkwise.cluster.nodes.node_capacity import capacity_of
from linkwise.cluster.objects.pod import Pod
from linkwise.policy.document import parse_policy
from linkwise.policy.profile import parse_profiles
from linkwise.policy.snapshot import PolicySnapshot
from support.builders import a_node, an_exact_node
from webhook.review import allow_unchanged, encode_response, parse_pod_review

# A node offers replicas that Linkwise chooses.
SLICED = Capacity(nodes=1, whole=8, replicas=8)
# Linkwise chooses GPUs under NVIDIA's name on one node, and the plugin on another.
EXACT = capacity_of([an_exact_node(), a_node("plain-0", mode="default", labels={})])
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
    "gpu-topology": "job",
    keys.GPU_TOPOLOGY_REPLICA: "4",
    keys.POD_GROUP_NAME: "job",
    keys.POD_GROUP_MIN_AVAILABLE: "4",
}


def a_snapshot(policy="", profiles=()):
    return PolicySnapshot(parse_policy(policy), parse_profiles(json.dumps(list(profiles))))


def outcome_of(pod, policy=NO_POLICY, *, namespace=NO_LABELS, capacity=NO_CAPACITY, workload=None):
    """Return the outcome for a pod; `namespace`: its labels, None where they are not known."""
    return admit(
        msgspec.convert(pod, Pod),
        namespace="default",
        namespace_labels=namespace,
        policy=policy,
        capacity=capacity,
        workload=workload,
    )


def review_response(body, *, namespaces, policy, capacity):
    """Return the encoded response to one AdmissionReview, without a server.

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
    return jsonpatch.apply_patch(pod, [operation.wire() for operation in outcome.patch])


def admitted(pod, policy=NO_POLICY, **options):
    """Return the patched pod of an admission that must allow it."""
    outcome = outcome_of(pod, policy, **options)
    assert outcome.verdict is Verdict.ALLOWED, outcome.findings
    return patched(pod, outcome)


def codes(outcome, severity=None):
    return [each.code for each in outcome.findings if severity in {None, each.severity}]


def requirements_of(pod):
    terms = pod["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    (term,) = terms
    return {each["key"]: each["values"] for each in term["matchExpressions"]}


def env_of(pod, container=0):
    entries = pod["spec"]["containers"][container].get("env", [])
    return {each["name"]: each.get("valueFrom", each.get("value")) for each in entries}
