"""Run draws beside each other on one control plane, and check that no gang runs in part."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Any

from controlplane.draws import HIGH, LOW, Draw, Kubelet
from controlplane.history import History
from controlplane.pods import Pods
from controlplane.process import wait_until
from controlplane.refusals import Refusals
from controlplane.soak import often
from controlplane.temporary import priority_class, temporary_namespace

AT_ONCE = 10
"""Draws that share the scorer and the control plane."""
POLICY = """\
gangs:
  preemption: {minRunMinutes: 0}
  onFault: evict
  onFaultSeconds: 1
  maxConcurrentMoves: 10
"""
_WHOLE_AFTER = often(150, 30)
"""The longest time after the last refusal; other tests share the machine of the short form [s]."""
_EVICTIONS = 4
"""The most evictions of one member: an eviction in vain is not repeated again and again."""


@contextmanager
def drawing(
    pods: Pods, refusals: Refusals, add_nodes: Callable[..., Any]
) -> Iterator[Callable[[int], None]]:
    """Yield what runs the draws from a number on.

    Args:
        pods: Of any namespace.
        refusals: Between the scorer and the API server.
        add_nodes: Adds nodes, given as lines of a cluster file's short form.
    """
    with ExitStack() as stack:
        for name, value in {LOW: 100, HIGH: 1000}.items():
            stack.enter_context(priority_class(pods, name, value))

        def draw(first: int) -> None:
            spaces = [temporary_namespace(pods.api, "draw-") for _ in range(AT_ONCE)]
            named = [Pods(pods.api, stack.enter_context(space)) for space in spaces]
            made = [Draw(first + i, each, refusals) for i, each in enumerate(named)]
            add_nodes(*(each.nodes for each in made))
            _run(pods, refusals, made)

        yield draw


def _run(pods: Pods, refusals: Refusals, draws: Sequence[Draw]) -> None:
    # The same draws in every run.
    at_random = {draw: Random(draw.number) for draw in draws}  # noqa: S311
    with ExitStack() as stack:
        history = stack.enter_context(History(pods.api))
        stack.enter_context(Kubelet([draw.pods for draw in draws]))
        with ThreadPoolExecutor(AT_ONCE) as clients:
            list(clients.map(lambda draw: draw.fill(at_random[draw]), draws))
        reasons = []
        for draw in draws:
            draw.refuse(at_random[draw])
            reasons.append(stack.enter_context(draw.trigger(at_random[draw])))
        wait_until(lambda: refusals.are_over, "all refusals that end have ended")
        wait_until(lambda: _are_settled(draws), "no gang runs in part", _WHOLE_AFTER)
        history.catch_up()
    assert (history.held_twice(), history.misplaced()) == ([], [])
    evicted = [max(history.evictions(draw.pods.namespace).values(), default=0) for draw in draws]
    print(reasons, dict(refusals.hits), evicted)
    assert 0 < max(evicted) <= _EVICTIONS


def _are_settled(draws: Sequence[Draw]) -> bool:
    """Return whether each gang is whole or has no GPUs now."""
    return all(draw.present() is not None for draw in draws)
