"""PersistentVolumeClaims by the volume that they have, or by the class that is to give them one."""

from collections.abc import Callable, Iterable, Set

from linkwise.cluster.volumes.claim import Claim
from linkwise.runtime.kube.objects import Key


class ClaimIndex:
    """Keys of claims by one of their facts."""

    def __init__(self, name_of: Callable[[Claim], str]) -> None:
        """Start without claims.

        Args:
            name_of: Returns the fact; empty: the claim is not in the index.
        """
        self._name_of = name_of
        self._names: dict[Key, str] = {}
        self._keys: dict[str, set[Key]] = {}

    def update(self, key: Key, claim: Claim | None) -> None:
        """Take a changed claim; None: it was deleted."""
        if before := self._names.pop(key, ""):
            self._keys[before].discard(key)
            if not self._keys[before]:
                del self._keys[before]
        name = self._name_of(claim) if claim else ""
        if name:
            self._names[key] = name
            self._keys.setdefault(name, set()).add(key)

    def of(self, names: Iterable[str]) -> Set[Key]:
        """Return the claims of some names."""
        return {key for name in names for key in self._keys.get(name, ())}
