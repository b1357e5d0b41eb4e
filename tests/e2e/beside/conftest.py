"""A scheduler beside the scorer, installed once for all tests of this folder."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
from controlplane.manifests import WITH_SCHEDULER
from controlplane.plane import ControlPlane
from controlplane.pods import Pods
from controlplane.process import wait_until
from controlplane.sidecar import Sidecar, restart_scheduler, run_sidecar
from controlplane.webhook import Webhook, run_webhook

from linkwise.cluster import keys

_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


@pytest.fixture(scope="package")
def webhook(plane: ControlPlane) -> Iterator[Webhook]:
    """What is shipped with that scheduler, and one replica of the webhook."""
    with run_webhook(plane, WITH_SCHEDULER) as running:
        yield running


@pytest.fixture(scope="package")
def policy_with(webhook: Webhook) -> Callable[[str], AbstractContextManager[None]]:
    """Lets the policy say more than is shipped, for as long as a context lasts."""
    api = webhook.plane.api
    path = f"/api/v1/namespaces/{keys.POLICY_NAMESPACE}/configmaps/{keys.POLICY_NAME}"

    def write(text: str) -> None:
        api.patch(path, {"data": {keys.POLICY_KEY: text}})

    @contextmanager
    def lengthened(more: str) -> Iterator[None]:
        shipped = api.get(path)["data"][keys.POLICY_KEY]
        write(f"{shipped}\n{more}")
        try:
            yield
        finally:
            write(shipped)

    return lengthened


@pytest.fixture(scope="package")
def sidecar(webhook: Webhook, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    """The scheduler and the scorer."""
    with run_sidecar(webhook.plane, tmp_path_factory.mktemp("sidecar")) as running:
        yield running


@pytest.fixture
def pods(sidecar: Sidecar, webhook: Webhook, namespace: str) -> Iterator[Pods]:
    """The pods of a namespace of the test's own, which they bring to nodes."""
    # It ends when it cannot renew its Lease in time, and here is no kubelet.
    if not sidecar.scheduler.runs:
        restart_scheduler(webhook.plane, sidecar)
    made = Pods(webhook.plane.api, namespace)
    yield made
    made.clear()


@pytest.fixture
def urgent(pods: Pods) -> Iterator[dict[str, str]]:
    """What says in a pod's spec that it goes before others."""
    spec = {"priorityClassName": "urgent"}
    pods.api.create(_CLASSES, {"metadata": {"name": "urgent"}, "value": 1000})
    try:
        wait_until(lambda: not pods.refusal({}, spec=spec, dryRun="All"), "the class is known")
        yield spec
    finally:
        pods.api.delete(f"{_CLASSES}/urgent")
