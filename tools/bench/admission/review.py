"""The AdmissionReview of the admission benchmarks: the worker of a gang, as an API server sends it.

6.6 KB, as real ones have: a training pod with its volumes, a service account's token, the default
tolerations, and the managers of its fields: `review.json`, which is sent without spaces.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

from support.admission import review_response

from linkwise.cluster import keys
from linkwise.cluster.nodes.capacity import Capacity
from linkwise.policy.profile import parse_profiles
from linkwise.policy.snapshot import PolicySnapshot

NAMESPACE = "vision"
TIMES = 2_000
"""Reviews of one repetition."""

PROFILE = {
    "name": "gpu-hpn-driver",
    "objectSelector": {"matchLabels": {keys.COMPUTE_CLASS: "gpu-hpn"}},
    "effect": {"labels": {keys.DRIVER_VERSION: "1.5.0"}},
}
_POLICY = PolicySnapshot(profiles=parse_profiles(json.dumps([PROFILE])))
_CAPACITY = Capacity(nodes=2, whole=8)
_NAMESPACES = {NAMESPACE: {keys.NAMESPACE_NAME: NAMESPACE}}


def rows() -> Iterator[tuple[str, str, Callable[[], float]]]:
    """Yield the measurements."""
    body = review_bytes()
    name = f"admission of a {len(body) / 1000:.1f} KB AdmissionReview, bytes to bytes"

    def measure() -> float:
        start = perf_counter()
        for _ in range(TIMES):
            run(body)
        return (perf_counter() - start) / TIMES

    yield name, "≤ 60 µs", measure


def run(body: bytes) -> bytes:
    """Return the answer to a review, under a policy with one profile."""
    answer: bytes = review_response(
        body, namespaces=_NAMESPACES, policy=_POLICY, capacity=_CAPACITY
    )
    return answer


def review_bytes() -> bytes:
    """Return the review of the creation of `worker`."""
    return json.dumps(_review(), separators=(",", ":")).encode()


def worker() -> dict[str, Any]:
    """Return the pod: worker 3 of a gang of 4, one GPU each, as arena and its operator make it."""
    pod: dict[str, Any] = _review()["request"]["object"]
    return pod


def _review() -> dict[str, Any]:
    review: dict[str, Any] = json.loads(Path(__file__).with_name("review.json").read_text("utf-8"))
    return review
