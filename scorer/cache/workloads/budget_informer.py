"""Watch the PodDisruptionBudgets: which pods each selects, and how many evictions it allows."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import replace

import msgspec
from msgspec import Raw

from linkwise.cluster.objects.disruption_budget import DisruptionBudget
from linkwise.cluster.objects.kube_object import Labels
from linkwise.planning.gang.budgets import OF_NAMESPACE_MAX, Budget, conflict_of, selecting
from linkwise.planning.gang.pod_info import PodInfo
from linkwise.runtime.kube.client import Kube
from linkwise.runtime.kube.decode import decode
from linkwise.runtime.kube.objects import Key
from linkwise.runtime.kube.reflector import Reflector

_decoder = msgspec.json.Decoder(DisruptionBudget)


def read_budget(raw: bytes | Raw) -> Budget:
    """Return a PodDisruptionBudget from its JSON.

    Raises:
        msgspec.DecodeError: The JSON is not that of a PodDisruptionBudget.
    """
    return Budget.of(decode(raw, _decoder))


class BudgetInformer:
    """All PodDisruptionBudgets, by namespace."""

    def __init__(self, kube: Kube) -> None:
        """Prepare the watch."""
        self._by_namespace: dict[str, dict[str, Budget]] = {}
        self._names: dict[str, set[str]] = {}
        """By namespace: those that were read, some of which a list that failed had."""
        path = "/apis/policy/v1/poddisruptionbudgets"
        self.reflector = Reflector(kube, path, self._read, on_change=self._changed)

    def _read(self, raw: Raw) -> Budget:
        """Return a budget; of more than are compared in a namespace only that they exist."""
        budget = read_budget(raw)
        namespace, _, name = budget.name.partition("/")
        names = self._names.setdefault(namespace, set())
        names.add(name)
        return budget if len(names) <= OF_NAMESPACE_MAX else replace(budget, conditions=())

    def selecting(self, namespace: str, labels: Labels | None) -> frozenset[str] | None:
        """Return the budgets that select a pod; None: its namespace has too many to compare."""
        return selecting(self._by_namespace.get(namespace, {}).values(), labels)

    def at_present(self) -> Callable[[str, Labels | None], frozenset[str] | None]:
        """Return `selecting` with the budgets of this moment, for another thread."""
        present = {name: (*budgets.values(),) for name, budgets in self._by_namespace.items()}
        return lambda namespace, labels: selecting(present.get(namespace, ()), labels)

    def blocker(self, pods: Iterable[PodInfo]) -> str | None:
        """Return which budget does not let all these pods be evicted; None: all do.

        The Eviction API judges one pod after the other, so that it would stop in the middle of a
        gang. A pod that is not ready may be evicted beyond a budget; here it counts like others.
        """
        counts, allowed = Counter[str](), self.allowed
        for pod in pods:
            names = self.selecting(pod.namespace, pod.life.labels if pod.life else {})
            if names is None:
                return "its namespace has too many PodDisruptionBudgets"
            if conflict := conflict_of(names):
                return conflict
            counts.update(names)
        for name, count in sorted(counts.items()):
            if count > allowed.get(name, 0):
                return (
                    f"PodDisruptionBudget {name.partition('/')[2]} lets {allowed.get(name, 0)} of "
                    f"its {count} pods be evicted"
                )
        return None

    @property
    def allowed(self) -> dict[str, int]:
        """The evictions that each budget allows now, by `namespace/name`."""
        budgets = self.reflector.items.values()
        return {budget.name: budget.allowed for budget in budgets}

    def _changed(self, items: Mapping[Key, Budget], changed: Set[Key]) -> None:
        for namespace, name in changed:
            budget = items.get((namespace, name))
            of_namespace = self._by_namespace.setdefault(namespace, {})
            of_namespace.pop(name, None)
            if budget is not None:
                of_namespace[name] = budget
            else:
                self._names.get(namespace, set()).discard(name)
            if not of_namespace:
                del self._by_namespace[namespace]
                self._names.pop(namespace, None)
