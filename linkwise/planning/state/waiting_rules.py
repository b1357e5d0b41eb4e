"""Waiting pods with rules about other pods, which may fit because of others that come or change."""

from dataclasses import replace

from linkwise.cluster.account.pod_usage import PodUsage
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.runtime.kube.objects import Key


class WaitingRules:
    """The pods behind our gate that have affinity, anti-affinity or topology spread."""

    def __init__(self) -> None:
        """Start without pods."""
        self._ruled: set[Key] = set()
        self._following: set[Key] = set()
        """Those that may fit because of others that come."""

    def update(self, key: Key, pod: PodInfo | None) -> None:
        """Take a pod; None: it was deleted."""
        self._ruled.discard(key)
        self._following.discard(key)
        if pod and pod.member and pod.member.rules:
            self._ruled.add(key)
            if pod.member.rules.affinity or pod.member.rules.spread:
                self._following.add(key)

    def may_fit(self, old: PodUsage | None, new: PodUsage | None) -> bool:
        """Return whether a refused unit may fit since the usage of a pod has changed.

        Args:
            old: Its usage before; None: it had none.
            new: Its usage now, another one; None: it has none.
        """
        if old and new and replace(old, neighbor=new.neighbor) == new:
            # Its labels have changed, which a tenant may do several times a second, and which only
            # rules about other pods read.
            return bool(self._ruled or old.neighbor.repels)
        has_come = bool(self._following) and new is not None and bool(new.target)
        return has_come or (old is not None and bool(old.target))
