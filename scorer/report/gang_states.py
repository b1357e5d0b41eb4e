"""How gangs stand now, as far as what is watched tells."""

from scorer.cache.informers import Informers
from scorer.gang.crd import Gang
from scorer.report.gang_state import GangState, gang_state


class GangStates:
    """Tells it of any gang that has a Gang object."""

    def __init__(self, informers: Informers) -> None:
        """Say what is watched."""
        self._informers = informers

    def __call__(self, gang: Gang, needed: int | None) -> GangState:
        """Return how a gang stands.

        Args:
            gang: Its object.
            needed: How many members it was last known to need; None where nobody said.
        """
        key, informers = gang.key, self._informers
        stated, declared = needed or gang.spec.size, informers.owners.declared.get(key.owner)
        if declared is not None:
            stated = min(stated or declared, declared)
        pods = [pod for pod in informers.state.group(key[:2]) if informers.owners.key(pod) == key]
        is_suspended = informers.is_suspended(key.owner)
        return gang_state(pods, stated, gang.spec.plan, informers.state, is_suspended=is_suspended)
