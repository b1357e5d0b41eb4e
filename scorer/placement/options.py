"""Options of placement, apart from the state of the cluster."""

from dataclasses import dataclass

from cluster.node import PackingStrategy
from policy.document import Policy
from topology.choice import ChoiceMode


@dataclass(frozen=True, slots=True)
class Preferences:
    """What administrators prefer, for all plans."""

    mode: ChoiceMode = ChoiceMode.KEEP
    """Mode of the choice of GPUs on one node."""
    placement: PackingStrategy = PackingStrategy.BINPACK
    """Layout of whole GPUs over nodes of equal bandwidth."""
    domains: tuple[str, ...] = ()
    """Node labels whose equal values mean a common network domain, nearest first."""
    nic_bandwidth: float | None = None
    """Bandwidth of all NICs of a node together [GB/s]; None where it is unknown."""


def preferences_of(policy: Policy, mode: ChoiceMode = ChoiceMode.KEEP) -> Preferences:
    """Return the preferences of a policy; only simulations choose another mode."""
    gangs = policy.gangs
    return Preferences(mode, policy.placement.strategy, gangs.domains, gangs.nic_bandwidth)
