"""Gangs are whole or have no GPUs, although evictions and patches are refused at random.

The refusals begin in the middle of preemptions, faults and lost nodes, while kubelets change pods.
`make soak` draws ten times as many.
"""

import pytest
from controlplane.all_or_none import AT_ONCE, POLICY, drawing
from controlplane.scorer import run_scorer
from controlplane.soak import often

HEAD = "apiVersion: linkwise.dev/v1alpha1\nkind: Policy\n"


@pytest.fixture(scope="module")
def placing(webhook, refusals, tmp_path_factory):
    folder = tmp_path_factory.mktemp("scorer")
    with run_scorer(webhook.plane, folder, LINKWISE_API_SERVER=refusals.server) as running:
        yield running


@pytest.mark.usefixtures("placing")
@pytest.mark.parametrize("first", range(0, often(2, 20) * AT_ONCE, AT_ONCE))
def test_each_gang_is_whole_or_has_no_gpus_after_refusals_at_random(
    pods, nodes, policy, refusals, first
):
    policy(HEAD + POLICY)
    with drawing(pods, refusals, nodes) as draw:
        draw(first)
