"""Find out which parts of the API for dynamic resource allocation (DRA) an API server has."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import structlog
from msgspec import Struct

from linkwise.runtime.kube.client import Kube, KubeError
from linkwise.runtime.kube.paths import path_below

GROUP = "/apis/resource.k8s.io"
CLAIMS, SLICES, CLASSES = (
    path_below(GROUP, "v1", each) for each in ("resourceclaims", "resourceslices", "deviceclasses")
)
_RULES = "devicetaintrules"
_RETRY = 1.0
"""Before the API server is asked again [s]."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class DraAPI:
    """The parts that are served."""

    has_claims: bool
    """ResourceClaims and ResourceSlices."""
    rules: str | None
    """The collection of DeviceTaintRules; None: they are not served."""


class _Resource(Struct, frozen=True):
    name: str = ""


class _Resources(Struct, frozen=True):
    resources: list[_Resource] | None = None


def api_version(collection: str) -> str:
    """Return the API version of the objects of a collection, such as `resource.k8s.io/v1`."""
    return collection.removeprefix("/apis/").rpartition("/")[0]


async def find_api(kube: Kube, rules: Sequence[str]) -> DraAPI:
    """Return what the API server has, as soon as it answers.

    Args:
        kube: The client.
        rules: Versions of the API that may serve DeviceTaintRules, the preferred one first.
    """
    while True:
        try:
            return await _find(kube, rules)
        except KubeError as error:
            _log.warning("Lost watch", resource=GROUP, err=str(error))
            await asyncio.sleep(_RETRY)


async def _find(kube: Kube, rules: Sequence[str]) -> DraAPI:
    if await kube.find(path_below(GROUP, "v1"), _Resources) is None:
        return DraAPI(has_claims=False, rules=None)
    for version in rules:
        listed = await kube.find(path_below(GROUP, version), _Resources)
        if listed and any(one.name == _RULES for one in listed.resources or ()):
            return DraAPI(has_claims=True, rules=path_below(GROUP, version, _RULES))
    return DraAPI(has_claims=True, rules=None)
