"""Pods of a tenant that wants more GPUs than it requests: any of their fields may be an attempt."""

from random import Random
from typing import Any

from controlplane.bypass.spelling import quantity

from linkwise.cluster import container_variables, keys

Json = dict[str, Any]

IMAGE = "registry.example/none"
AMOUNTS = {
    keys.GPU_WHOLE: (0, 1, 2, 4, 8, 9),
    keys.NVIDIA_GPU: (0, 1, 2),
    keys.NVIDIA_GPU_SHARED: (0, 1, 2),
    keys.GPU_MEM: (0, 1, 4, 15, 16),
    keys.GPU_CORE: (0, 5, 50, 100, 200),
    "aliyun.com/GPU": (1,),
    "aliyun.com/gpu-": (1,),
    "requests.aliyun.com/gpu": (1,),
    "example.com/gpu": (1,),
}
"""Resources and how many of each are requested."""
_VARIABLES = (
    *((container_variables.ENV_VISIBLE_DEVICES,) * 6),
    *(
        container_variables.ENV_CGPU_OFF,
        container_variables.ENV_MPS_THREADS,
        container_variables.ENV_MPS_MEMORY,
    ),
    *(keys.MEM_CONTAINER, keys.MEM_IDX, keys.MEM_POD, keys.MEM_DEV, "A"),
    *(
        container_variables.ENV_IMEX_CHANNELS,
        container_variables.ENV_MIG_CONFIG,
        container_variables.ENV_MIG_MONITOR,
    ),
)
_VALUES = ("all", "0,1,2,3,4,5,6,7", "0", "$(A)", "void", "none", "", "void ", "100", "true", "16")
_NULL = {"name": "null", "hostPath": {"path": "/dev/null"}}
_MOUNTED = (
    *(
        f"{container_variables.DEVICE_MOUNTS}/all",
        f"{container_variables.DEVICE_MOUNTS}/imex/0",
        f"{container_variables.DEVICE_MOUNTS}/cdi/a=b",
    ),
    *(
        f"/{container_variables.DEVICE_MOUNTS}/0",
        f"{container_variables.DEVICE_MOUNTS[1:]}/1",
        f"/a/..{container_variables.DEVICE_MOUNTS}//2",
    ),
    *("/var/./run/a/../nvidia-container-devices/3", "/run/nvidia-container-devices/4", "/any"),
)
ANNOTATIONS = (
    *(keys.VISIBLE_DEVICES, f"{keys.VISIBLE_DEVICES_OF}main", f"{keys.VISIBLE_DEVICES_OF}other"),
    *(keys.ALLOCATION, keys.TERM, keys.ISOLATION, keys.GANG),
    *(keys.MEM_IDX, keys.MEM_POD, keys.MEM_DEV, keys.MEM_ASSIGNED, keys.GPUSHARE_ALLOCATION),
    *(keys.ARENA_GPU_VISIBLE, keys.GPUSHARE_CORE),
    *(keys.NVIDIA_CDI_DOMAIN, f"{keys.NVIDIA_CDI_DOMAIN}/pod", f"{keys.CDI_ANNOTATION_PREFIX}any"),
    *(f"{keys.NVIDIA_CDI_CONTAINER}main", keys.MIRROR_POD, "any"),
)
_ANNOTATED = (
    *("all", "0,1,2,3,4,5,6,7", "nvidia.com/gpu=all", "{}", "", "100"),
    '{"node":"gpu-0","gpus":[{"i":0},{"i":1},{"i":2},{"i":3}]}',
)
_SCHEDULERS = (*((None,) * 8), "default-scheduler", keys.SCHEDULER, "other")
_MODES = ("topology", "share", "core_mem", "timeslice", "default", "none")


def a_pod(name: str, nodes: tuple[str, ...], random: Random) -> Json:
    """Return a pod of random fields; most of them are meant to be accepted."""
    metadata: Json = {"name": name}
    if _rarely(random):
        metadata["annotations"] = annotations(random)
    spec: Json = {"containers": [_container("main", random)], "terminationGracePeriodSeconds": 0}
    spec["volumes"] = [_NULL]
    if random.random() < 0.4:
        spec["containers"].append(_container("other", random))
    if random.random() < 0.3:
        init = [_container(f"init-{i}", random) for i in range(random.choice((1, 2)))]
        for one in init:
            if random.random() < 0.5:
                one["restartPolicy"] = "Always"
        spec["initContainers"] = init
    if random.random() < 0.15:
        metadata["labels"] = {
            keys.POD_GROUP_NAME: random.choice(("one", "two")),
            keys.POD_GROUP_MIN_AVAILABLE: random.choice(("1", "2", "x")),
        }
    if scheduler := random.choice(_SCHEDULERS):
        spec["schedulerName"] = scheduler
    _add_oddities(spec, nodes, random)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _add_oddities(spec: Json, nodes: tuple[str, ...], random: Random) -> None:
    """Add fields by which a pod could bypass admission or placement."""
    if _rarely(random):
        spec["nodeName"] = random.choice(nodes)
    if _rarely(random):
        spec["nodeSelector"] = {keys.NODE_MODE: random.choice(_MODES)}
    if _rarely(random):
        spec["schedulingGates"] = [{"name": random.choice((keys.GANG, "example.com/own"))}]
    if _rarely(random):
        spec["resources"] = {"limits": _amounts(random)}
    if _rarely(random):
        spec["ephemeralContainers"] = [_container("debug", random)]
    if _rarely(random):
        spec["overhead"] = _amounts(random)
    if _rarely(random):
        spec["schedulingGroup"] = {"podGroupName": "any"}


def annotations(random: Random) -> dict[str, str]:
    """Return one or two annotations, of which some say what GPUs a pod has."""
    return {
        random.choice(ANNOTATIONS): random.choice(_ANNOTATED) for _ in range(random.choice((1, 2)))
    }


def mounts(random: Random) -> list[Json]:
    """Return mounts of a container, most of which name devices."""
    paths = random.sample(_MOUNTED, random.choice((1, 1, 2)))
    return [{"name": _NULL["name"], "mountPath": path} for path in paths]


def variables(random: Random) -> list[Json]:
    """Return variables of a container, with values or sources."""
    return [_variable(random) for _ in range(random.choice((1, 1, 2, 3)))]


def _variable(random: Random) -> Json:
    name = random.choice(_VARIABLES)
    if random.random() < 0.7:
        return {"name": name, "value": random.choice(_VALUES)}
    sources = (
        {"fieldRef": {"fieldPath": f"metadata.annotations['{random.choice(ANNOTATIONS)}']"}},
        {"configMapKeyRef": {"name": "any", "key": "all", "optional": True}},
        {"resourceFieldRef": {"containerName": "main", "resource": "limits.cpu"}},
    )
    return {"name": name, "valueFrom": random.choice(sources)}


def _container(name: str, random: Random) -> Json:
    made: Json = {"name": name, "image": IMAGE}
    if random.random() < 0.75:
        limits = _amounts(random)
        made["resources"] = {"limits": limits}
        if random.random() < 0.2:
            made["resources"] = {"requests": limits}
        elif random.random() < 0.2:
            made["resources"]["requests"] = _amounts(random)
    if random.random() < 0.4:
        made["env"] = variables(random)
    if _rarely(random):
        made["volumeMounts"] = mounts(random)
    if _rarely(random):
        made["envFrom"] = [{"prefix": "NVIDIA_", "configMapRef": {"name": "a", "optional": True}}]
    return made


def _amounts(random: Random) -> Json:
    common = (keys.GPU_WHOLE, keys.GPU_MEM, keys.GPU_MEM, keys.NVIDIA_GPU_SHARED)
    names = {random.choice(common) if random.random() < 0.7 else random.choice(list(AMOUNTS))}
    if (names == {keys.GPU_MEM} and random.random() < 0.5) or _rarely(random):
        names.add(keys.GPU_CORE)
    return {name: quantity(random.choice(AMOUNTS[name]), random) for name in sorted(names)}


def _rarely(random: Random) -> bool:
    return random.random() < 0.08
