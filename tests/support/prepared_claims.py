"""The state of a kubelet's DRA manager, as `pkg/kubelet/cm/dra/state` of Kubernetes writes it."""

import json
import zlib

from linkwise.cluster.keys import DRA_GPU_DRIVER


def claim_of(*devices, pods=("uid",), driver=DRA_GPU_DRIVER):
    """Return the entry of a claim with devices of a driver, which pods have."""
    return {
        "ClaimUID": "claim-uid",
        "ClaimName": "lw-1",
        "Namespace": "team",
        "PodUIDs": {uid: {} for uid in pods},
        "DriverState": {driver: {"Devices": [_device(name) for name in devices]}},
    }


def state_of(*claims, none=False):
    """Return the content of the file; `none`: the list of claims is null, as of a new kubelet."""
    data = {
        "kind": "DRACheckpoint",
        "apiVersion": "checkpoint.dra.kubelet.k8s.io/v1",
        "ClaimInfoStateList": None if none else claims,
    }
    text = json.dumps(data)
    return json.dumps({"Data": text, "Checksum": zlib.crc32(text.encode())}).encode()


def _device(name):
    return {
        "PoolName": "gpu-0",
        "DeviceName": name,
        "ShareID": None,
        "RequestNames": ["container-0"],
        "CDIDeviceIDs": [f"k8s.gpu.nvidia.com/claim=claim-uid-{name}"],
    }
