"""The draws of `test_all_or_none` with a scheduler beside the scorer, which preempts for pods."""

import pytest
from controlplane.all_or_none import AT_ONCE, POLICY, drawing
from controlplane.manifests import WITH_SCHEDULER
from controlplane.sidecar import run_sidecar
from controlplane.soak import often
from controlplane.webhook import run_webhook

from linkwise.cluster import keys


@pytest.fixture(scope="module")
def webhook(plane):
    with run_webhook(plane, WITH_SCHEDULER) as running:
        yield running


@pytest.fixture(scope="module")
def sidecar(webhook, refusals, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sidecar")
    with run_sidecar(webhook.plane, folder, LINKWISE_API_SERVER=refusals.server) as running:
        yield running


@pytest.mark.usefixtures("sidecar")
@pytest.mark.parametrize("first", range(1000, 1000 + often(1, 10) * AT_ONCE, AT_ONCE))
def test_each_gang_is_whole_beside_a_scheduler_after_refusals_at_random(
    pods, nodes, policy, refusals, first
):
    path = f"/api/v1/namespaces/{keys.POLICY_NAMESPACE}/configmaps/{keys.POLICY_NAME}"
    policy(f"{pods.api.get(path)['data'][keys.POLICY_KEY]}\n{POLICY}")
    with drawing(pods, refusals, nodes) as draw:
        draw(first)
