"""Gangs are whole or have no GPUs, although evictions and patches are refused at random.

The refusals begin in the middle of preemptions, faults and lost nodes, while kubelets change pods.
`make soak` draws ten times as many.
"""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from random import Random

import pytest
from controlplane.draws import HIGH, LOW, Draw, Kubelet
from controlplane.history import History
from controlplane.pods import Pods
from controlplane.process import wait_until
from controlplane.refusals import Refusals, Write
from controlplane.scorer import run_scorer
from controlplane.soak import often
from controlplane.temporary import priority_class, temporary_namespace

AT_ONCE = 10
"""Draws that share the scorer and the control plane."""
POLICY = """\
apiVersion: linkwise.dev/v1alpha1
kind: Policy
gangs:
  preemption: {minRunMinutes: 0}
  onFault: evict
  onFaultSeconds: 1
  maxConcurrentMoves: 10
"""
WHOLE_AFTER = often(150, 30)
"""The longest time after the last refusal; other tests share the machine of the short form [s]."""
EVICTIONS = 4
"""The most evictions of one member: an eviction in vain is not repeated again and again."""


@pytest.fixture(scope="module")
def refusals(webhook):
    plane = webhook.plane
    with Refusals(plane.server, str(plane.ca_file)) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def placing(webhook, refusals, tmp_path_factory):
    folder = tmp_path_factory.mktemp("scorer")
    with run_scorer(webhook.plane, folder, LINKWISE_API_SERVER=refusals.server) as running:
        yield running


@pytest.fixture
def draws(pods, placing, policy, nodes, refusals):
    """Ten draws on nodes of their own, in namespaces of their own."""
    del placing
    with ExitStack() as stack:
        for name, value in {LOW: 100, HIGH: 1000}.items():
            stack.enter_context(priority_class(pods, name, value))
        policy(POLICY)

        def begin(first):
            spaces = [temporary_namespace(pods.api, "draw-") for _ in range(AT_ONCE)]
            named = [Pods(pods.api, stack.enter_context(space)) for space in spaces]
            made = [Draw(first + i, each, refusals) for i, each in enumerate(named)]
            nodes(*(draw.nodes for draw in made))
            return made

        yield begin


def are_settled(draws):
    """Return whether each gang is whole or has no GPUs now."""
    return all(draw.present() or True for draw in draws)


@pytest.mark.parametrize("first", range(0, often(2, 20) * AT_ONCE, AT_ONCE))
def test_each_gang_is_whole_or_has_no_gpus_after_refusals_at_random(pods, draws, refusals, first):
    made, at_random = draws(first), {}
    with ExitStack() as stack:
        history = stack.enter_context(History(pods.api))
        stack.enter_context(Kubelet([draw.pods for draw in made]))
        with ThreadPoolExecutor(AT_ONCE) as clients:
            for draw in made:
                at_random[draw] = Random(draw.number)  # noqa: S311 - equal in every run.
            list(clients.map(lambda draw: draw.fill(at_random[draw]), made))
        reasons = []
        for draw in made:
            draw.refuse(at_random[draw])
            reasons.append(stack.enter_context(draw.trigger(at_random[draw])))
        wait_until(lambda: refusals.are_over, "all refusals that end have ended")
        wait_until(lambda: are_settled(made), "no gang runs in part", WHOLE_AFTER)
        history.catch_up()
    assert (history.held_twice(), history.misplaced()) == ([], [])
    evicted = [history.evictions(draw.pods.namespace) for draw in made]
    print(reasons, dict(refusals.hits), [max(each.values(), default=0) for each in evicted])
    assert max(max(each.values(), default=0) for each in evicted) <= EVICTIONS
    assert any(write is Write.EVICT or write is Write.TRY for write, _ in refusals.hits)
