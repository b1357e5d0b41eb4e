"""Would pods fit that are not there yet: what the webhook asks the scorer, and what it is answered.

`POST /v1/fit`. The answer's parts stand in dry runs and in `check` as they are: fields may be
added, never changed.
"""

from msgspec import Struct

from cluster.pod import Pod

PATH = "/v1/fit"
MOST_PODS = 256
"""Of one question; each is placed as if it were created, which takes the scorer's processor."""


class FitTemplate(Struct, frozen=True):
    """The pods that would be made of one template, all alike."""

    pod: Pod
    """One of them, as admission let it pass, with its namespace."""
    names: list[str]
    """Of all of them, in rank order; at least one."""
    owner: str = ""
    """What tells their gang from one of the same name: the uid of their topmost owner."""
    members: int | None = None
    """How many pods with GPUs that owner makes; None where it does not tell."""


class FitQuestion(Struct, frozen=True):
    """Templates whose pods would be created together, in this order."""

    templates: list[FitTemplate]

    @property
    def pods(self) -> int:
        """How many pods it is about."""
        return sum(len(asked.names) for asked in self.templates)


class PodFit(Struct, frozen=True):
    """Where one pod would go."""

    name: str
    node: str | None
    """None: nowhere now."""
    gpus: list[int] | None
    """Indices, ascending; None where it goes nowhere, or NVIDIA's plugin chooses them."""


class NodeLeft(Struct, frozen=True, omit_defaults=True):
    """What a node has free, and what would be left; lists are by GPU index."""

    name: str
    mode: str
    gpus: int
    free_before: int
    """GPUs of which nobody has anything."""
    free_after: int
    memory_free_before: list[int] | None = None
    """What shares may take of each card [GiB]; None where no shares come, and so the next."""
    memory_free_after: list[int] | None = None
    core_free_before: list[int] | None = None
    """What shares may take of each card's compute [%]; None where none is given out."""
    core_free_after: list[int] | None = None
    replicas_free_before: list[int] | None = None
    """Replicas of each GPU; None where it is not time-sliced."""
    replicas_free_after: list[int] | None = None


class FitResult(Struct, frozen=True):
    """Whether the pods of one template fit now, all of them, and where."""

    fits: bool
    gang: str | None
    """The gang that is placed as a whole; None: each pod goes by itself."""
    pods: list[PodFit]
    """In the order in which they were named."""
    nodes: list[NodeLeft]
    """Those that they would go to, before and after all that was asked about, by name."""
    bandwidth: float | None
    """Modelled all-reduce bandwidth, of pods on their own the least [GB/s]; None: undefined."""
    best_possible: float | None
    """The same on the empty cluster [GB/s]."""
    why: str | None
    """Why these nodes; None where several pods go by themselves, or nothing fits."""
    notes: list[str]
    """What is not known, or left to others, of any of them; each once."""
    reason: str | None
    """Why not all of them fit; None where they do."""


class FitAnswer(Struct, frozen=True):
    """One for each template that was asked about."""

    fits: list[FitResult]
