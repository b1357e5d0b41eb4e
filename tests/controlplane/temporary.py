"""Objects that exist while a block runs: a namespace, a priority class."""

from collections.abc import Iterator
from contextlib import contextmanager

from controlplane.api import Api
from controlplane.pods import Pods
from controlplane.process import wait_until

_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


@contextmanager
def temporary_namespace(api: Api, prefix: str) -> Iterator[str]:
    """Yield the name of a namespace in which pods can be made."""
    made = api.create("/api/v1/namespaces", {"metadata": {"generateName": prefix}})
    name = made["metadata"]["name"]
    accounts = f"/api/v1/namespaces/{name}/serviceaccounts"
    wait_until(lambda: bool(api.get(accounts)["items"]), f"{name} has a ServiceAccount")
    try:
        yield name
    finally:
        api.delete(f"/api/v1/namespaces/{name}")
        # From here on no operator makes a pod in it, which would go to the next test's nodes.
        api.delete(f"/api/v1/namespaces/{name}/pods", gracePeriodSeconds="0")


@contextmanager
def priority_class(pods: Pods, name: str, value: int) -> Iterator[None]:
    """Let pods have a priority class, whose pods preempt."""
    pods.api.create(_CLASSES, {"metadata": {"name": name}, "value": value})
    spec = {"priorityClassName": name}
    try:
        wait_until(lambda: not pods.refusal({}, spec=spec, dryRun="All"), f"class {name} is known")
        yield
    finally:
        pods.api.delete(f"{_CLASSES}/{name}")
