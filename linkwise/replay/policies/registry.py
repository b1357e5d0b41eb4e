"""All policies by name."""

from collections.abc import Callable, Mapping

from linkwise.replay.job import Shape
from linkwise.replay.policies.fgd import FragmentationGradientDescent, typical_pods
from linkwise.replay.policies.linkwise import Linkwise, LinkwiseByFragments
from linkwise.replay.policies.own import is_own, load
from linkwise.replay.policies.packing import (
    best_fit,
    dot_product,
    gpu_clustering,
    gpu_packing,
    random_cards,
    random_node,
    round_robin,
    worst_fit,
)
from linkwise.replay.policies.policy import (
    Context,
    PodByPod,
    Policy,
    highest,
    least_left,
    lowest_indices,
    most_left,
)
from linkwise.replay.policies.products import (
    LeastAllocated,
    NativeGangs,
    TopologyAwareScheduling,
    best_effort_cards,
    hami_binpack_cards,
    hami_node,
    hami_spread_cards,
    hami_spread_node,
)


def _fgd(popularity: Mapping[Shape, float]) -> Policy:
    descent = FragmentationGradientDescent(typical_pods(popularity))
    return PodByPod(descent.node, descent.cards)


POLICIES: Mapping[str, Callable[[Context], Policy]] = {
    "linkwise": lambda _: Linkwise(),
    "linkwise-fgd": lambda run: LinkwiseByFragments(typical_pods(run.popularity)),
    "random": lambda run: PodByPod(random_node(run.draw), random_cards(run.draw)),
    "round-robin": lambda _: PodByPod(round_robin(), lowest_indices),
    "best-fit": lambda _: PodByPod(highest(best_fit), least_left),
    "worst-fit": lambda _: PodByPod(highest(worst_fit), most_left),
    "dot-product": lambda _: PodByPod(highest(dot_product), least_left),
    "gpu-packing": lambda _: PodByPod(highest(gpu_packing), least_left),
    "gpu-clustering": lambda _: PodByPod(highest(gpu_clustering), least_left),
    "fgd": lambda run: _fgd(run.popularity),
    "hami-binpack": lambda _: PodByPod(highest(hami_node), hami_binpack_cards),
    "hami-spread": lambda _: PodByPod(highest(hami_spread_node), hami_spread_cards),
    "nvidia": lambda run: PodByPod(LeastAllocated(run.draw), best_effort_cards),
    "native-gangs": lambda run: NativeGangs(run.draw),
    "kueue-tas": lambda _: TopologyAwareScheduling(),
}
"""How each policy is created for a run."""


def factory_of(name: str) -> Callable[[Context], Policy]:
    """Return how a policy is created for a run.

    Args:
        name: Of one of `POLICIES`, or `module:factory`.

    Raises:
        InputError: The module cannot be imported, or has no such function.
    """
    return load(name) if is_own(name) else POLICIES[name]
