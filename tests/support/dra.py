"""ResourceSlices, claims and rules of NVIDIA's DRA driver, as Kubernetes writes them."""

import json

import msgspec

from linkwise.cluster.nodes.device_claims import ClaimObject
from linkwise.cluster.nodes.resource_slice import SliceObject
from linkwise.cluster.nodes.taint_rules import RuleObject

DRIVER = "gpu.nvidia.com"
PRODUCT = "NVIDIA H100 80GB HBM3"


def a_device(i, *, name=None, bus=None, taints=(), counters=(), shared=False, **attributes):
    """Return GPU i of a node as the driver publishes it; keywords replace attributes, None removes.

    An attribute is a text or a number; `memory` is a capacity.
    """
    memory = attributes.pop("memory", "81559Mi")
    bus = 0x10 + 8 * i if bus is None else bus
    values = {
        "type": "gpu",
        "uuid": f"GPU-{i}",
        "productName": PRODUCT,
        "resource.kubernetes.io/pciBusID": f"0000:{bus:02x}:00.0",
        "resource.kubernetes.io/pcieRoot": f"pci0000:{bus:02x}",
        "resource.kubernetes.io/numaNode": i // 4,
        **attributes,
    }
    device = {
        "name": name or f"gpu-{i}",
        "attributes": {
            key: {"int" if isinstance(value, int) else "string": value}
            for key, value in values.items()
            if value is not None
        },
    }
    device["attributes"]["driverVersion"] = {"version": "550.163.1"}
    if memory:
        device["capacity"] = {"memory": {"value": memory}}
    if taints:
        device["taints"] = [
            dict(zip(("key", "value", "effect"), one, strict=True)) for one in taints
        ]
    if counters:
        device["consumesCounters"] = [{"counterSet": name} for name in counters]
    if shared:
        device["allowMultipleAllocations"] = True
    return device


def a_slice(*devices, node="node-a", name="slice", driver=DRIVER, pool=None, generation=1, count=1):
    """Return a ResourceSlice of a node."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {
                "name": pool or node,
                "generation": generation,
                "resourceSliceCount": count,
            },
            "devices": list(devices),
        },
    }


def a_claim(
    *devices, node="node-a", pool=None, name="claim", named_node=True, owner=None, **result
):
    """Return a ResourceClaim that holds devices of a node."""
    results = [
        {"request": "gpu", "driver": DRIVER, "pool": pool or node, "device": device, **result}
        for device in devices
    ]
    allocation = {"devices": {"results": results}}
    if named_node:
        fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
        allocation["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": fields}]}
    metadata = {"name": name, "namespace": "team"}
    if owner:
        reference = {"apiVersion": "v1", "kind": "Pod", "name": owner, "uid": owner}
        metadata["ownerReferences"] = [{**reference, "controller": True}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": metadata,
        "spec": {},
        "status": {"allocation": allocation},
    }


def a_rule(*taint, **selector):
    """Return a DeviceTaintRule with a taint: key, value, effect."""
    spec = {"taint": dict(zip(("key", "value", "effect"), taint, strict=True))}
    if selector:
        spec["deviceSelector"] = selector
    return {"metadata": {"name": "rule"}, "spec": spec}


def read_slice(raw):
    return msgspec.json.decode(json.dumps(raw), type=SliceObject).content


def read_claim(raw):
    return msgspec.json.decode(json.dumps(raw), type=ClaimObject).content


def read_rule(raw):
    return msgspec.json.decode(json.dumps(raw), type=RuleObject).content
