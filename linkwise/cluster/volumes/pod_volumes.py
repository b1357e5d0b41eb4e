"""Requirements of a pod's volumes for its node, or the reason why it waits for them."""

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple

from linkwise.cluster.volumes.free_volumes import Candidates
from linkwise.cluster.volumes.node_choice import NodeChoice
from linkwise.cluster.volumes.volume import Attachment


class Binding(NamedTuple):
    """An unbound claim that binds a volume which exists, unless one can be made for its node."""

    storage_class: str
    candidates: Candidates
    provision: NodeChoice | None
    """The nodes for which a volume can be made; None: for none."""


class HeldVolumes(NamedTuple):
    """What a pod takes of the volumes of its node."""

    attached: frozenset[Attachment] = frozenset()
    """The volumes that are attached for it."""
    binds: tuple[str, ...] = ()
    """The classes of the free volumes that its claims are about to bind, one for each claim."""


NO_VOLUMES = HeldVolumes()


@dataclass(frozen=True, slots=True)
class PodVolumes:
    """The volumes of a pod, as they are now."""

    waits: str | None = None
    """What the pod waits for, whatever its node is; None: for nothing."""
    choices: tuple[NodeChoice, ...] = ()
    """A node must satisfy each of them."""
    bindings: tuple[Binding, ...] = ()
    """A node must have a volume for each of them, or one must be made for it."""
    attached: frozenset[Attachment] = frozenset()
    """Volumes that are attached to its node."""
    exclusive: tuple[str, ...] = ()
    """Claims that no other pod may use."""
    absent: tuple[str, ...] = ()
    """Claims that do not exist, of a pod that does not exist either: they may be made with it."""

    @property
    def kind(self) -> Hashable:
        """Equal for pods whose volumes allow the same nodes, and take as much there.

        The members of a StatefulSet have volumes of their own, of one driver.
        """
        drivers = Counter(attachment.driver for attachment in self.attached)
        return self.choices, self.bindings, tuple(sorted(drivers.items()))

    @property
    def is_tied(self) -> bool:
        """They cannot be used from every node."""
        return bool(self.choices or self.bindings)

    @property
    def held(self) -> HeldVolumes:
        """What the pod takes of its node."""
        if not self.attached and not self.bindings:
            return NO_VOLUMES
        return HeldVolumes(self.attached, tuple(one.storage_class for one in self.bindings))
