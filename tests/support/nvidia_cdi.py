"""CDI specifications in the shape in which NVIDIA's toolkit writes them."""

import yaml

HOOK = "/usr/bin/nvidia-cdi-hook"


def nvidia_spec(gpus, *, naming=("index", "uuid"), driver="535.161.08", version="0.5.0"):
    """Return the specification of `nvidia-ctk cdi generate` as a value."""
    devices = []
    for gpu in gpus:
        names = {"index": str(gpu.i), "uuid": gpu.uuid, "type-index": f"gpu{gpu.i}"}
        devices += [
            {"name": names[kind], "containerEdits": gpu_edits(gpu.minor)} for kind in naming
        ]
    nodes = [node for gpu in gpus for node in gpu_edits(gpu.minor)["deviceNodes"]]
    devices.append({"name": "all", "containerEdits": {"deviceNodes": nodes}})
    return {
        "cdiVersion": version,
        "kind": "nvidia.com/gpu",
        "devices": devices,
        "containerEdits": {
            "env": ["NVIDIA_CTK_LIBCUDA_DIR=/usr/lib", "NVIDIA_VISIBLE_DEVICES=void"],
            "deviceNodes": [
                {"path": f"/dev/{name}", "hostPath": f"/dev/{name}"}
                for name in ("nvidia-modeset", "nvidia-uvm", "nvidia-uvm-tools", "nvidiactl")
            ],
            "hooks": [
                hook("enable-cuda-compat", f"--host-driver-version={driver}"),
                hook("update-ldcache", "--folder", "/usr/lib"),
            ],
            "mounts": [mount(f"/usr/lib/libcuda.so.{driver}"), mount("/usr/bin/nvidia-smi")],
        },
    }


def gpu_edits(minor):
    """Return the edits of one GPU."""
    return {
        "deviceNodes": [
            {"path": f"/dev/nvidia{minor}", "hostPath": f"/dev/nvidia{minor}"},
            {"path": f"/dev/dri/card{minor}", "hostPath": f"/dev/dri/card{minor}"},
        ],
        "hooks": [hook("create-symlinks", "--link", f"../card{minor}::/dev/dri/by-path/{minor}")],
    }


def hook(*args):
    """Return a hook of the toolkit."""
    return {
        "hookName": "createContainer",
        "path": HOOK,
        "args": ["nvidia-cdi-hook", *args],
        "env": ["NVIDIA_CTK_DEBUG=false"],
    }


def mount(path):
    """Return a mount of the toolkit."""
    return {
        "hostPath": path,
        "containerPath": path,
        "options": ["ro", "nosuid", "nodev", "rbind", "rprivate"],
    }


def as_yaml(spec):
    """Return the file of a specification."""
    return yaml.safe_dump(spec, sort_keys=False).encode()
