"""Find pods that get more GPUs than they requested, from stored objects alone.

No reader of Linkwise is used, so that its mistakes are found.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from controlplane.history import History, Write

from linkwise.cluster import container_variables, keys

Json = dict[str, Any]
Limits = tuple[int, int, int]
"""Of one GPU: pods that may have it whole or as a replica, memory [GiB], compute [%]."""
Taken = Counter[tuple[str, int, int]]
"""By node, index of the GPU, and which of its limits."""

_SUFFIXES = {"k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18, "m": -3, "u": -6, "n": -9}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_OURS = (keys.GPU_WHOLE, keys.GPU_MEM, keys.GPU_CORE)
"""Resources that only Linkwise gives out, on every node."""
_OFFERED = {
    "topology": (keys.GPU_WHOLE, keys.NVIDIA_GPU),
    "timeslice": (keys.NVIDIA_GPU_SHARED,),
    "core_mem": (keys.GPU_MEM, keys.GPU_CORE),
}
"""Resources by mode. A kubelet rejects a pod that requests others, and kwok runs it."""
_NO_GPU = ("", "void", "none")
_DEVICE_VARIABLES = (container_variables.ENV_IMEX_CHANNELS, container_variables.ENV_MIG_CONFIG)
"""Variables by which NVIDIA's runtime gives a container more than GPUs."""
_CDI = (keys.CDI_ANNOTATION_PREFIX, keys.NVIDIA_CDI_DOMAIN)
_SHARE_ANNOTATIONS = (keys.MEM_IDX, keys.MEM_POD, keys.MEM_DEV)
_ENDED = ("Succeeded", "Failed")


def amount(text: str) -> int:
    """Return a quantity as API servers write it, rounded up."""
    for suffix, power in _BINARY.items():
        if text.endswith(suffix):
            return int(Decimal(text.removesuffix(suffix)) * 2**power)
    if text[-1] in _SUFFIXES:
        return int((Decimal(text[:-1]).scaleb(_SUFFIXES[text[-1]])).to_integral_value("ROUND_UP"))
    return int(Decimal(text).to_integral_value("ROUND_UP"))


def _limit(container: Json, resource: str) -> int:
    resources = container.get("resources", {})
    parts = (resources.get("limits", {}), resources.get("requests", {}))
    return max(amount(part.get(resource, "0")) for part in parts)


def total(spec: Json, resource: str) -> int:
    """Return what a pod requests, by the rule of Kubernetes for init containers and sidecars."""
    apps = sum(_limit(one, resource) for one in spec["containers"])
    sidecars = most = 0
    for one in spec.get("initContainers", []):
        if one.get("restartPolicy") == "Always":
            sidecars += _limit(one, resource)
            most = max(most, sidecars)
        else:
            most = max(most, sidecars + _limit(one, resource))
    return max(apps + sidecars, most)


@dataclass(frozen=True, slots=True)
class Judge:
    """The GPUs of the nodes, by which stored pods are checked."""

    nodes: dict[str, Limits]
    """Nodes whose GPUs Linkwise gives out, and the limits of each of their GPUs."""
    modes: dict[str, str] = field(default_factory=dict)
    """The mode of each of these nodes."""
    reviewed: bool = True
    """The webhook answered: variables and annotations of pods are judged, too."""

    def problems(self, history: History) -> list[str]:
        """Return the pods that had more GPUs than they requested, or GPUs of another pod."""
        found: dict[str, None] = {}
        held: dict[str, Taken] = {}
        taken = Taken()
        for write in history.writes:
            if not write.gone:
                for problem in self.of_pod(write.pod):
                    found[f"{write.key}: {problem}"] = None
            taken.subtract(held.pop(write.uid, Taken()))
            if not write.ended:
                held[write.uid] = _held(write)
                taken.update(held[write.uid])
                for node, gpu, part in held[write.uid]:
                    limit = self.nodes[node][part] if node in self.nodes else 0
                    if taken[node, gpu, part] > limit:
                        found[f"{write.key}: GPU {gpu} of {node} is overbooked"] = None
        return list(found)

    def of_pod(self, pod: Json) -> Iterator[str]:
        """Yield what is wrong with one state of one pod."""
        spec, record = pod["spec"], _record(pod)
        node = spec.get("nodeName", "")
        requested = {name: total(spec, name) for name in keys.RESOURCES}
        if record is not None:
            yield from _record_problems(record, requested, node)
        elif self._gives(node, requested) and not _excludes(spec, self.modes[node]):
            yield f"runs on {node} with {requested} and without a record"
        # On a counted node NVIDIA's plugin sets the variables.
        placed = bool(record and record["gpus"]) or any(requested[name] for name in _OURS)
        if self.reviewed:
            yield from _annotation_problems(pod, placed, record)
            yield from _container_problems(pod, placed, record)
            yield from _device_problems(spec, any(requested.values()))

    def _gives(self, node: str, requested: dict[str, int]) -> bool:
        """Return whether a node whose GPUs Linkwise gives out offers any requested resource."""
        return any(requested[name] for name in _OFFERED.get(self.modes.get(node, ""), ()))


def _excludes(spec: Json, mode: str) -> bool:
    """Return whether a pod excludes a mode: then the kubelet rejects it, and kwok runs it."""
    affinity = spec.get("affinity", {}).get("nodeAffinity", {})
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {})
    terms = required.get("nodeSelectorTerms", [])
    return bool(terms) and all(
        any(
            one["key"] == keys.NODE_MODE and one["operator"] == "NotIn" and mode in one["values"]
            for one in term.get("matchExpressions", [])
        )
        for term in terms
    )


def _record(pod: Json) -> Json | None:
    text = pod["metadata"].get("annotations", {}).get(keys.ALLOCATION)
    return None if text is None else json.loads(text)


def _held(write: Write) -> Taken:
    """Return what the record of a pod says that it has of each GPU."""
    record = _record(write.pod)
    held = Taken()
    for gpu in (record["gpus"] or ()) if record else ():
        where = record["node"], gpu["i"]
        if "mem" in gpu:
            held[*where, 1] += gpu["mem"]
            held[*where, 2] += gpu.get("core", 0)
        else:
            held[*where, 0] += 1
    return held


def _record_problems(record: Json, requested: dict[str, int], node: str) -> Iterator[str]:
    gpus = record["gpus"]
    if gpus is None:
        if record["count"] != requested[keys.NVIDIA_GPU]:
            yield f"has {record['count']} GPUs, and requests {requested}"
        return
    memory, core = (sum(gpu.get(key, 0) for gpu in gpus) for key in ("mem", "core"))
    if memory:
        if (memory, core) != (requested[keys.GPU_MEM], requested[keys.GPU_CORE]):
            yield f"has {memory} GiB and {core} %, and requests {requested}"
    else:
        counts = (keys.GPU_WHOLE, keys.NVIDIA_GPU, keys.NVIDIA_GPU_SHARED)
        if len(gpus) != sum(requested[name] for name in counts):
            yield f"has {len(gpus)} GPUs, and requests {requested}"
    if node not in ("", record["node"]):
        yield f"runs on {node}, and its GPUs are of {record['node']}"


def _annotation_problems(pod: Json, placed: bool, record: Json | None) -> Iterator[str]:
    annotations = pod["metadata"].get("annotations", {})
    if placed:
        yield from (f"has the annotation {key}" for key in annotations if key.startswith(_CDI))
    if record is None:
        ours = (keys.VISIBLE_DEVICES, keys.TERM, *_SHARE_ANNOTATIONS)
        yield from (f"has {key} before a record" for key in ours if placed and key in annotations)
        return
    gpus = record["gpus"] or ()
    if len(gpus) == 1 and "mem" in gpus[0]:
        expected = {keys.MEM_IDX: str(gpus[0]["i"]), keys.MEM_POD: str(gpus[0]["mem"])}
        actual = {key: annotations.get(key) for key in expected}
        if actual != expected:
            yield f"has {actual} instead of {expected}"


def _container_problems(pod: Json, placed: bool, record: Json | None) -> Iterator[str]:
    spec = pod["spec"]
    for one in (*spec["containers"], *spec.get("initContainers", [])):
        if problem := _devices_problem(pod, one, placed, record):
            yield f"container {one['name']} {problem}"
        if _limit(one, keys.GPU_MEM):
            yield from (f"container {one['name']} {text}" for text in _share_problems(one))
    for one in spec.get("ephemeralContainers", []):
        variable = _variable(one, container_variables.ENV_VISIBLE_DEVICES)
        is_void = variable is not None and _literal(variable) == "void"
        if not is_void and (placed or variable is not None):
            yield f"ephemeral container {one['name']} sees {variable}"


def _device_problems(spec: Json, with_gpus: bool) -> Iterator[str]:
    """Yield by what else containers would get devices from NVIDIA's runtime.

    Args:
        spec: Spec of a pod.
        with_gpus: It requests GPUs. A pod without may read the MIG configuration of all.
    """
    names = (*_DEVICE_VARIABLES, *((container_variables.ENV_MIG_MONITOR,) if with_gpus else ()))
    lists = ("containers", "initContainers", "ephemeralContainers")
    for one in (container for name in lists for container in spec.get(name, [])):
        for variable in (_variable(one, name) for name in names):
            if variable is not None and _literal(variable) not in _NO_GPU:
                yield f"container {one['name']} gets what {variable} says"
        for mount in one.get("volumeMounts", []):
            if _names_device(mount["mountPath"]):
                yield f"container {one['name']} gets what is mounted at {mount['mountPath']}"


def _names_device(path: str) -> bool:
    """Return whether a path is below the folder whose files name devices."""
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            parts = parts[:-1]
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(["", *parts]).startswith(container_variables.DEVICE_MOUNTS)


def _devices_problem(pod: Json, container: Json, placed: bool, record: Json | None) -> str:
    """Return why a container sees more GPUs than it requests; empty if it does not."""
    variable = _variable(container, container_variables.ENV_VISIBLE_DEVICES)
    if variable is None:
        # Without a request, the image decides: a limit that SECURITY.md states.
        return "has no variable" if placed else ""
    if _literal(variable) in _NO_GPU:
        return ""
    path = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "")
    name = container["name"]
    ours = (keys.VISIBLE_DEVICES, f"{keys.VISIBLE_DEVICES_OF}{name}")
    key = next((key for key in ours if path == f"metadata.annotations['{key}']"), None)
    if key is None:
        return f"sees what {variable} says"
    counts = (keys.GPU_WHOLE, keys.NVIDIA_GPU, keys.NVIDIA_GPU_SHARED)
    count = sum(_limit(container, resource) for resource in counts)
    if not count and not _limit(container, keys.GPU_MEM):
        return "requests no GPU, and sees those of its pod"
    value = pod["metadata"].get("annotations", {}).get(key, "")
    seen = value.split(",") if value else []
    known = {str(gpu.get("uuid") or gpu["i"]) for gpu in (record or {}).get("gpus") or ()}
    if not known.issuperset(seen):
        return f"sees {seen}, and its pod has {known}"
    return f"sees {seen}, and requests {count}" if count and len(seen) > count else ""


def _share_problems(container: Json) -> Iterator[str]:
    """Yield by which variables a container gets more of a card than it requests."""
    off = _variable(container, container_variables.ENV_CGPU_OFF)
    if off is not None and _literal(off) not in ("", "false"):
        yield f"turns its limits off: {off}"
    own = _variable(container, keys.MEM_CONTAINER)
    if own is not None and _literal(own) != str(_limit(container, keys.GPU_MEM)):
        yield f"has another limit than it requests: {own}"
    for name in _SHARE_ANNOTATIONS:
        variable = _variable(container, name)
        path = f"metadata.annotations['{name}']"
        if variable and variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath") != path:
            yield f"says itself what card it has: {variable}"


def _variable(container: Json, name: str) -> Json | None:
    """Return the variable that counts: the last of its name."""
    return next((one for one in reversed(container.get("env", [])) if one["name"] == name), None)


def _literal(variable: Json) -> str | None:
    """Return a variable's value; None where it has a source, or another variable is put in."""
    value = variable.get("value", "")
    return None if "valueFrom" in variable or "$(" in value else value
