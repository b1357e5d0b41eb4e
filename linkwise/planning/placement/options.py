"""Options of placement, apart from the state of the cluster."""

from dataclasses import dataclass
from typing import NamedTuple

from linkwise.cluster.gang import Link
from linkwise.cluster.mode import PackingStrategy
from linkwise.policy.document import Policy
from linkwise.topology.choice import ChoiceMode


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


class SiblingGPUs(NamedTuple):
    """GPUs of other members of a gang on the only node of a snapshot."""

    mask: int = 0
    multi_node: bool = False
    """Some of its members are on other nodes."""


_NO_SIBLINGS = SiblingGPUs()


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """What one plan asks besides the needs of its members."""

    link: Link = Link.BEST
    """How strictly the members insist on links (`linkwise.dev/link`)."""
    reserved: frozenset[str] = frozenset()
    """Nodes that are reserved for another unit; nothing is planned there."""
    siblings: SiblingGPUs = _NO_SIBLINGS
    """The members that have their GPUs on the node: new ones are planned with them."""

    @property
    def is_linked(self) -> bool:
        """Every set of GPUs must be connected by NVLink alone."""
        return self.link is Link.NVLINK


DEFAULT = PlanOptions()


def preferences_of(policy: Policy, mode: ChoiceMode = ChoiceMode.KEEP) -> Preferences:
    """Return the preferences of a policy; only simulations choose another mode."""
    gangs = policy.gangs
    return Preferences(mode, policy.placement.strategy, gangs.domains, gangs.nic_bandwidth)
