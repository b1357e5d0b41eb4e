"""The state of one unit that is being taken off its GPUs. Pure.

asking     the API server is asked whether it would let each pod be evicted; nothing is touched
evicting   its pods are evicted, those that are bound first
gone       each eviction was accepted
untouched  none was: the unit runs on
returned   some were, and another one was refused: the evicted pods go back to their own places
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from linkwise.cluster.gang import GangKey
from linkwise.planning.gang.pod_info import PodInfo

AGAIN = 5.0
"""Time after which a pod is evicted again whose eviction was accepted, and that stays [s]."""
_PASSING, _UNANSWERED = 5.0, 30.0
"""For how long a refusal that may pass, and no answer, are tried again [s]."""
_NOWHERE = 60.0
"""The same for any refusal, where evicted pods have no places to which they could go back [s]."""
_TOO_MANY, _SERVER = 429, 500
_NO_REFUSAL = {0, 409}
"""No answer; a write at the same time."""


class Step(Enum):
    """The step of a removal."""

    ASKING = "asking"
    EVICTING = "evicting"
    GONE = "gone"
    UNTOUCHED = "untouched"
    RETURNED = "returned"


@dataclass(frozen=True, slots=True)
class Removal:
    """A unit, and what became of its pods so far."""

    key: GangKey
    pods: tuple[PodInfo, ...]
    """All that are to go; an elastic gang may keep others."""
    is_begun: bool = False
    """An earlier leader has evicted some of its pods, which are not in `pods`."""
    step: Step = Step.ASKING
    accepted: Mapping[str, float] = field(default_factory=dict)
    """By uid of an evicted pod: when [s, of the loop's clock]."""
    refused: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    """By uid of a refused pod: the last status, and since when it is refused."""
    refusal: str = ""
    """Why a pod was not evicted, for users. It names no object of another namespace."""

    @property
    def is_over(self) -> bool:
        """It is decided what becomes of the unit."""
        return self.step not in {Step.ASKING, Step.EVICTING}

    @property
    def summary(self) -> str:
        """What became of it, for users."""
        if self.step is Step.GONE:
            return "all members are evicted"
        if not self.accepted:
            return f"no member is evicted: {self.refusal}"
        verb, back = (
            ("was", "goes back to its place")
            if len(self.accepted) == 1
            else (
                "were",
                "go back to their places",
            )
        )
        count = f"{len(self.accepted)} of {len(self.pods)} members {verb} evicted"
        return f"{count} and {back}, since another one could not be evicted: {self.refusal}"

    @property
    def is_touched(self) -> bool:
        """Some of its pods were evicted."""
        return self.is_begun or bool(self.accepted)

    def due(self, left: Collection[PodInfo], now: float) -> list[list[PodInfo]]:
        """Return the pods to evict now: those that are bound, then the others.

        A gang with an unbound member is found by the next leader, one with bound ones only runs.

        Args:
            left: Its pods that stay.
            now: [s, of the loop's clock]
        """
        pods = [pod for pod in left if now - self.accepted.get(pod.uid, -AGAIN) >= AGAIN]
        waves = [pod for pod in pods if pod.bound], [pod for pod in pods if not pod.bound]
        return [wave for wave in waves if wave]

    def asked(self, answers: Mapping[str, int | None], now: float) -> "Removal":
        """Return the state after dry runs: evicting if all were accepted.

        Where pods were evicted before, a refusal may pass as one in the middle may.
        """
        after = self.refused_by(answers, now)
        if not after.refused:
            return replace(after, step=Step.EVICTING)
        # An error of the API server is no refusal, either.
        statuses = [
            status
            for status, _ in after.refused.values()
            if status not in _NO_REFUSAL and status < _SERVER
        ]
        is_final = bool(statuses) and not self.is_begun
        return after.given_up(refusal_text(max(statuses))) if is_final else after

    def answered(
        self,
        answers: Mapping[str, int | None],
        now: float,
        may_return: Callable[[Collection[PodInfo]], bool] = lambda _: True,
    ) -> "Removal":
        """Return the state after evictions.

        Args:
            answers: The status of each refusal by uid; None: it was accepted.
            now: [s, of the loop's clock]
            may_return: Whether evicted pods can go back to their own places.
        """
        accepted = {uid: now for uid, status in answers.items() if status is None}
        after = replace(self, accepted={**self.accepted, **accepted})
        is_stuck = not may_return([pod for pod in self.pods if pod.uid in after.accepted])
        return after.refused_by(answers, now, least=_NOWHERE if is_stuck else 0.0)

    def refused_by(
        self, answers: Mapping[str, int | None], now: float, least: float = 0.0
    ) -> "Removal":
        """Return the state with these refusals only: given up if one has lasted for too long.

        Args:
            answers: As in `answered`.
            now: [s, of the loop's clock]
            least: For how long any refusal is tried again [s].
        """
        before = self.refused
        refused = {
            uid: (status, before[uid][1] if uid in before else now)
            for uid, status in answers.items()
            if status is not None
        }
        worst = max((status for status, _ in refused.values()), default=None)
        refusal = "" if worst is None else refusal_text(worst)
        over = [
            status
            for status, since in refused.values()
            if now - since >= max(_patience(status), least)
        ]
        after = replace(self, refused=refused, refusal=refusal)
        return after.given_up(refusal_text(max(over))) if over else after

    def gone(self) -> "Removal":
        """Return the state once none of its pods is to be evicted any more."""
        return replace(self, step=Step.GONE, refusal="")

    def given_up(self, why: str) -> "Removal":
        """Return the state once no more of its pods are evicted; `why` is empty for no refusal."""
        step = Step.RETURNED if self.is_touched else Step.UNTOUCHED
        return replace(self, step=step, refusal=why)


def _patience(status: int) -> float:
    """Return for how long an eviction is tried again that gets this answer [s]."""
    if status in _NO_REFUSAL:
        return _UNANSWERED
    return _PASSING if status == _TOO_MANY or status >= _SERVER else 0.0


def refusal_text(status: int) -> str:
    """Return why a pod was not evicted. The answer itself may name pods of other namespaces."""
    if status == _TOO_MANY:
        return "a disruption budget does not allow it now"
    return f"the API server refused it (status {status})" if status else "no answer"
