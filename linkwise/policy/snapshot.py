"""Immutable snapshot of policy and profiles."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256

from linkwise.policy.catalogue import Catalogue
from linkwise.policy.catalogue_section import catalogue_of
from linkwise.policy.document import ConstantsSection, MachineRule, NodeLabel, Policy
from linkwise.policy.profile import Profiles
from linkwise.policy.sharing import Shared, shared_by


@dataclass(frozen=True, slots=True)
class PolicySnapshot:
    """Policy and profiles with values derived from them; without arguments, the defaults."""

    policy: Policy = field(default_factory=Policy)
    profiles: Profiles = field(default_factory=Profiles)
    generation: int = 0
    """Incremented by each accepted change."""
    catalogue: Catalogue = field(init=False)
    shared: tuple[Shared, ...] = field(init=False)
    """Shared resources of all node groups, in the order of the policy."""
    digest: str = field(init=False)
    """Digest of the content, independent of layout and generation."""
    name: str = field(init=False)
    """Name in logs and audit annotations."""

    def __post_init__(self) -> None:
        groups = self.policy.sharing.groups
        policy = json.dumps(self.policy.model_dump(mode="json"), sort_keys=True)
        decided = f"{policy}\n{self.profiles.text}"
        object.__setattr__(self, "catalogue", catalogue_of(self.policy.catalogue))
        object.__setattr__(
            self, "shared", tuple(one for group in groups for one in shared_by(group))
        )
        object.__setattr__(self, "digest", sha256(decided.encode()).hexdigest()[:16])
        object.__setattr__(self, "name", f"generation={self.generation} digest={self.digest}")

    def machine_for(self, node_labels: Mapping[str, str]) -> str | None:
        """Return the machine name of a node by the rules, or None."""
        rule = self._rule(node_labels)
        return rule.machine if rule else None

    def constants_for(self, node_labels: Mapping[str, str]) -> ConstantsSection:
        """Return the link speeds of a node that the policy replaces; None for the others."""
        rule = self._rule(node_labels)
        given = rule.constants.model_dump(exclude_none=True) if rule else {}
        return self.policy.constants.model_copy(update=given)

    def node_values(self, label: NodeLabel, value: str) -> tuple[str, ...]:
        """Return the values of a node label that satisfy the label of a pod.

        Models are looked up by name and aliases.

        Args:
            label: `policy.affinity.node_labels.model`, or `.driver`.
            value: Label value of the pod.
        """
        model = self.catalogue.find(value)
        names = (value, model.name, *model.aliases) if model else (value,)
        return next((label.values[name] for name in names if name in label.values), (value,))

    def _rule(self, node_labels: Mapping[str, str]) -> MachineRule | None:
        for rule in self.policy.machines:
            if rule.node_labels.items() <= node_labels.items():
                return rule
        return None
