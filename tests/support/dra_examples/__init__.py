"""Examples of the documents of NVIDIA's DRA driver and of Kubernetes, as people paste them.

Images and commands differ, since nothing is ever pulled or run, and namespaces are left out.
Sources: `demo/specs/quickstart` and the guide on full GPUs of NVIDIA's driver; the task "Allocate
devices to workloads with DRA" and the concepts of Kubernetes.
"""

from pathlib import Path


def path_of(name: str) -> Path:
    """Return the path of an example."""
    return Path(__file__).parent / f"{name}.yaml"


def example(name: str) -> str:
    """Return the text of an example."""
    return path_of(name).read_text(encoding="utf-8")
