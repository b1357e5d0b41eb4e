"""NVIDIA's driver for dynamic resource allocation, as far as a scheduler sees it, and claims."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from controlplane.api import Api, ApiError, Object

from linkwise.cluster import keys

_API = "resource.k8s.io/v1"
_CLASSES = f"/apis/{_API}/deviceclasses"
SLICES = f"/apis/{_API}/resourceslices"


@contextmanager
def gpus_by_claims(
    api: Api, node: str, uuids: Sequence[str], resource: str | None = None
) -> Iterator[None]:
    """Publish the GPUs of a node as devices, and a class of them.

    Args:
        api: The API server.
        node: The node's name.
        uuids: Of its GPUs.
        resource: An extended resource by which pods may ask for them, too.
    """
    expression = f"device.driver == '{keys.DRA_GPU_DRIVER}'"
    spec: Object = {"selectors": [{"cel": {"expression": expression}}]}
    if resource:
        spec["extendedResourceName"] = resource
    api.create(_CLASSES, {"metadata": {"name": keys.DRA_GPU_DRIVER}, "spec": spec})
    api.create(SLICES, device_slice(node, uuids))
    try:
        yield
    finally:
        api.delete(f"{SLICES}/{node}-gpu")
        api.delete(f"{_CLASSES}/{keys.DRA_GPU_DRIVER}")


def device_slice(
    node: str,
    uuids: Sequence[str],
    *,
    name: str = "",
    pool: str = "",
    generation: int = 1,
    count: int = 1,
) -> Object:
    """Return a ResourceSlice of the driver.

    Args:
        node: The node that it names.
        uuids: Of its GPUs, which are devices from `gpu-0` on.
        name: Its own; empty: by the node.
        pool: Its pool; empty: that of the node.
        generation: Of the pool.
        count: Slices of the pool in this generation, as this one says.
    """
    devices = [
        {"name": f"gpu-{i}", "attributes": {"type": {"string": "gpu"}, "uuid": {"string": uuid}}}
        for i, uuid in enumerate(uuids)
    ]
    its = {"name": pool or node, "generation": generation, "resourceSliceCount": count}
    spec = {"driver": keys.DRA_GPU_DRIVER, "nodeName": node, "pool": its, "devices": devices}
    return {
        "apiVersion": _API,
        "kind": "ResourceSlice",
        "metadata": {"name": name or f"{node}-gpu"},
        "spec": spec,
    }


def claims_of(namespace: str) -> str:
    """Return the path of a namespace's claims."""
    return f"/apis/{_API}/namespaces/{namespace}/resourceclaims"


def make_claim(api: Api, namespace: str, name: str, count: int) -> None:
    """Create a claim of GPUs."""
    exactly = {"deviceClassName": keys.DRA_GPU_DRIVER, "count": count}
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    api.create(claims_of(namespace), {"metadata": {"name": name}, "spec": spec})


def delete_claims(api: Api, namespace: str) -> None:
    """Delete all claims; no kubelet has prepared them, so that nothing is to be undone."""
    for claim in api.get(claims_of(namespace))["items"]:
        path = f"{claims_of(namespace)}/{claim['metadata']['name']}"
        with suppress(ApiError):
            api.delete(path)
            api.patch(path, {"metadata": {"finalizers": []}})


def claiming(name: str) -> Object:
    """Return the fields of a pod's spec that give its container a claim."""
    container = {"name": "c0", "image": "registry.example/none"}
    return {
        "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
        "containers": [{**container, "resources": {"claims": [{"name": "gpu"}]}}],
    }
