"""Pod templates in other shapes than `spec` with a list of containers, in objects of any kind.

Argo's templates have one container, KServe's objects the fields of a pod's spec without `spec`, or
a model in place of a container, and Spark's roles a number of GPUs.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

_POD_FIELDS = (
    "initContainers",
    "nodeSelector",
    "affinity",
    "tolerations",
    "schedulerName",
    "priorityClassName",
    "resourceClaims",
    "volumes",
)
"""Fields of a pod's spec that stand beside a container."""
_CONTAINERS = ("container", "script")
_PREDICTOR = "predictor"
_MODELS = frozenset(
    {
        *("model", "pytorch", "tensorflow", "triton", "onnx", "huggingface", "sklearn", "xgboost"),
        *("lightgbm", "paddle", "pmml", "mlserver"),
    }
)
"""Fields of a KServe predictor that stand for its container."""
_SPARK_ROLES = frozenset({"driver", "executor"})

Plain = dict[str, object]


class Shape(NamedTuple):
    """A pod template that nobody wrote in this form."""

    spec: Plain
    """The pod's spec."""
    pods: int | None
    """Number of pods; None: the object says it elsewhere, or nowhere."""


def shape_of(key: str, plain: Mapping[str, object]) -> Shape | None:
    """Return the pod template that a map stands for; None: it stands for none.

    Args:
        key: The key of the map in its object.
        plain: The map.

    Cost: constant, and linear in the map's own fields.
    """
    if _has_containers(plain.get("containers")):
        return Shape({**plain}, _workers(plain))
    container = next(_containers(key, plain), None)
    if container is None:
        return None
    beside = {name: plain[name] for name in _POD_FIELDS if name in plain}
    return Shape({**beside, "containers": [container]}, _count(key, plain))


def _containers(key: str, plain: Mapping[str, object]) -> Iterator[Plain]:
    for name in _CONTAINERS:
        found = plain.get(name)
        if isinstance(found, dict) and ("image" in found or "resources" in found):
            yield {"name": "main", **found}
    if key == _PREDICTOR:
        for name in _MODELS & plain.keys():
            found = plain[name]
            if isinstance(found, dict):
                yield {"name": "kserve-container", "resources": found.get("resources") or {}}
    gpu = plain.get("gpu")
    if key in _SPARK_ROLES and isinstance(gpu, dict) and isinstance(gpu.get("name"), str):
        limits = {gpu["name"]: gpu.get("quantity", 1)}
        yield {"name": f"spark-{key}", "resources": {"limits": limits}}


def _count(key: str, plain: Mapping[str, object]) -> int | None:
    name = "minReplicas" if key == _PREDICTOR else "instances"
    count = plain.get(name)
    return count if isinstance(count, int) and 0 <= count < 1 << 31 else 1


def _workers(plain: Mapping[str, object]) -> int | None:
    """Return the number of pods of KServe's predictor, or of its workers."""
    size, least = plain.get("pipelineParallelSize"), plain.get("minReplicas")
    if isinstance(size, int) and 1 < size < 1 << 31:
        return size - 1
    return least if isinstance(least, int) and 0 <= least < 1 << 31 else None


def _has_containers(value: object) -> bool:
    """Return whether a value is a list of containers, and not of other things of this name."""
    return isinstance(value, list) and any(
        isinstance(one, dict) and not {"image", "resources"}.isdisjoint(one) for one in value
    )
