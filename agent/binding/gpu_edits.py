"""Edits of single GPUs in the CDI specification of NVIDIA's toolkit."""

import re
from collections.abc import Iterable

from agent.binding.cdi_spec import Device, Edits, Spec, SpecError, merge_edits
from agent.driver.reading import GPU, DriverReading
from linkwise.cluster.keys import NVIDIA_CDI_KIND

_GPU_NODE = re.compile(r"/nvidia([0-9]{1,9})$")
_DRIVER_LIBRARY = re.compile(r"/lib(?:cuda|nvidia-ml)\.so\.([0-9]+(?:\.[0-9]+)+)$")


def edits_of(spec: Spec, gpus: Iterable[GPU]) -> Edits:
    """Return the edits that give a container exactly these GPUs.

    Raises:
        SpecError: The specification lacks a GPU, or its edits give another GPU, too.
    """
    if _minors(spec.container_edits):
        raise SpecError("its edits for every container have GPUs, so no container would lack them")
    devices = [_device_of(spec, gpu) for gpu in gpus]
    return merge_edits([spec.container_edits, *(device.container_edits for device in devices)])


def problem_of(spec: Spec, reading: DriverReading) -> str | None:
    """Return why the specification does not fit the driver; None if it does.

    Only GPUs that can be offered must be in it.
    """
    versions = {
        match[1]
        for mount in spec.container_edits.mounts
        if (match := _DRIVER_LIBRARY.search(mount.host_path))
    }
    if versions and reading.driver not in versions:
        return f"made for driver {', '.join(sorted(versions))}, and {reading.driver} is loaded"
    try:
        edits_of(spec, (gpu for gpu in reading.gpus if gpu.fault is None and not gpu.mig))
    except SpecError as error:
        return str(error)
    return None


def _device_of(spec: Spec, gpu: GPU) -> Device:
    """Return the device of one GPU.

    The toolkit names devices by index, by UUID, or by both. The device node decides where it is
    known: the indices of an old specification may belong to other GPUs.
    """
    by_name = {device.name: device for device in spec.devices}
    if gpu.uuid in by_name:
        candidates = [by_name[gpu.uuid]]
    else:
        named = [by_name[name] for name in (str(gpu.i), f"gpu{gpu.i}") if name in by_name]
        candidates = named if gpu.minor is None else [*named, *spec.devices]
    for device in candidates:
        minors = _minors(device.container_edits)
        if minors == {gpu.minor} or (gpu.minor is None and len(minors) == 1):
            return device
    node = "" if gpu.minor is None else f" with /dev/nvidia{gpu.minor} alone"
    raise SpecError(f"no device of {NVIDIA_CDI_KIND} for GPU {gpu.i} ({gpu.uuid}){node}")


def _minors(edits: Edits) -> set[int]:
    """Return the minor numbers of the GPUs that edits give."""
    paths = (path for node in edits.device_nodes for path in (node.path, node.host_path or ""))
    return {int(match[1]) for path in paths if (match := _GPU_NODE.search(path))}
