"""The answer of kube-scheduler about the members of a plan that are not bound. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from linkwise.planning.gang.pod_info import PodInfo
from linkwise.planning.gang.scheduler_answer import Answer, Fault, read_answer

STANDS = 4.0
"""For how long an answer stands before anything is done about it [s]. kube-scheduler may be right
for a moment only: until another member is bound, or a pod has ended that it still counts. It tries
again 1 s and 3 s after the first try."""


@dataclass(frozen=True, slots=True)
class BindAnswer:
    """Why members of a plan are not bound."""

    fault: Fault
    pod: str
    """Name of the first of these members."""
    node: str
    """Its node."""
    words: str
    """kube-scheduler's about it."""
    nodes: frozenset[str]
    """The nodes whose fault it may be."""

    @property
    def waiting(self) -> str:
        """Why the unit waits, for users."""
        text = f"pod {self.pod} is not bound to {self.node} yet: kube-scheduler says: {self.words}"
        is_of_node = self.fault is not Fault.UNIT
        return text if is_of_node else f"{text}; no other node would help, and nothing is evicted"

    @property
    def failure(self) -> str:
        """Why the plan is given up, for users."""
        return f"pod {self.pod} was not bound to {self.node}: kube-scheduler says: {self.words}"


def answer_of(unbound: Iterable[PodInfo]) -> BindAnswer | None:
    """Return the answer about a plan; None: kube-scheduler has said nothing that is understood.

    What no node would change for one member counts before what another node would for others.

    Args:
        unbound: The members with GPUs and without a node.
    """
    answers = [
        (pod, pod.usage.target, answer)
        for pod in unbound
        if pod.unschedulable and pod.usage and (answer := _read(pod.unschedulable))
    ]
    if not answers:
        return None
    pod, node, answer = min(answers, key=lambda each: (_ORDER.index(each[2].fault), each[0].name))
    nodes = {target for _, target, each in answers if each.fault is not Fault.UNIT}
    return BindAnswer(answer.fault, pod.name, node, answer.words, frozenset(nodes))


_ORDER = (Fault.UNIT, Fault.NODE, Fault.UNKNOWN)


@lru_cache(maxsize=256)
def _read(message: str) -> Answer | None:
    """Read a message once: the members of a large gang may all have the same."""
    return read_answer(message)
