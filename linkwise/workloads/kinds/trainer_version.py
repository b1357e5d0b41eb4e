"""The version of Kubeflow Trainer, as far as objects of a cluster tell it.

Its controller's Deployment has it in its image, a public ConfigMap in a key, and objects that Helm
installed in a label. Source: kubeflow/trainer, `manifests/base/manager` and its chart at v2.2.
"""

import re
from collections.abc import Iterable

_IMAGE = re.compile(r"trainer-controller-manager:v?([0-9]{1,3})\.([0-9]{1,3})")
_CHART = re.compile(r"kubeflow-trainer-v?([0-9]{1,3})\.([0-9]{1,3})")
_VERSION = re.compile(r"v?([0-9]{1,3})\.([0-9]{1,3})")
_KEY, _LABEL = "kubeflow_trainer_version", "helm.sh/chart"
_MERGING = (2, 3)
"""The first version of which the resources of a TrainJob are merged with those of its runtime:
kubeflow/trainer#3602, of June 2026."""


def merges_resources(objects: Iterable[object]) -> bool | None:
    """Return whether Trainer merges resources; None if no object tells its version.

    Args:
        objects: Kubernetes objects, as they are parsed.

    Cost: linear in the objects, and in the containers of Deployments.
    """
    versions = [version for one in objects if (version := _version(one)) is not None]
    return max(versions) >= _MERGING if versions else None


def _version(plain: object) -> tuple[int, int] | None:
    kind = _get(plain, "kind")
    if kind == "Deployment":
        containers = _get(plain, "spec", "template", "spec", "containers")
        images = (_get(one, "image") for one in containers) if isinstance(containers, list) else ()
        found = (_IMAGE.search(image) for image in images if isinstance(image, str))
        return next((_pair(match) for match in found if match), None)
    if kind == "ConfigMap":
        text = _get(plain, "data", _KEY)
        match = _VERSION.match(text) if isinstance(text, str) else None
        return _pair(match) if match else None
    if kind in {"ClusterTrainingRuntime", "TrainingRuntime", "CustomResourceDefinition"}:
        label = _get(plain, "metadata", "labels", _LABEL)
        match = _CHART.match(label) if isinstance(label, str) else None
        return _pair(match) if match else None
    return None


def _get(plain: object, *path: str) -> object:
    for key in path:
        plain = plain.get(key) if isinstance(plain, dict) else None
    return plain


def _pair(match: re.Match[str]) -> tuple[int, int]:
    return int(match[1]), int(match[2])
