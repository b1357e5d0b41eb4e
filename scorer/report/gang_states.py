"""How gangs stand now, as far as what is watched tells."""

from scorer.cache.informers import Informers
from scorer.gang.crd import Gang
from scorer.report.gang_state import GangState, gang_state


class GangStates:
    """Tells it of any gang that has a Gang object."""

    def __init__(self, watches: Informers) -> None:
        """Say what is watched."""
        self._watches = watches

    def __call__(self, gang: Gang, needed: int | None) -> GangState:
        """Return how a gang stands.

        Args:
            gang: Its object.
            needed: How many members it was last known to need; None where nobody said.
        """
        key, watches = gang.key, self._watches
        stated, declared = needed or gang.spec.size, watches.owners.declared.get(key.owner)
        if declared is not None:
            stated = min(stated or declared, declared)
        pods = [pod for pod in watches.state.group(key[:2]) if watches.owners.key(pod) == key]
        is_suspended = watches.is_suspended(key.owner)
        return gang_state(pods, stated, gang.spec.plan, watches.state, is_suspended=is_suspended)
