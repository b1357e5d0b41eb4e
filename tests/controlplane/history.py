"""Record the changes of pods in the order of the API server.

It is checked afterwards, independently of the state of Linkwise: after every write, the holder of
each GPU, and the gangs that are partly bound.
"""

import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field

from controlplane.api import Api, ApiError, Object
from controlplane.background import Background
from controlplane.process import wait_until

from linkwise.cluster import keys

_PODS = "/api/v1/pods"
_ENDED = ("Succeeded", "Failed")
_GONE = 410

Gpu = tuple[str, int]
"""Node and index."""
Gang = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True, slots=True)
class Write:
    """One change of one pod."""

    at: float
    """When it was seen [s, monotonic]."""
    pod: Object
    """The pod after the write, or before its deletion."""
    gone: bool

    @property
    def key(self) -> str:
        """Its namespace and name; another pod may have had them before."""
        return f"{self.pod['metadata']['namespace']}/{self.pod['metadata']['name']}"

    @property
    def uid(self) -> str:
        """The pod's."""
        return str(self.pod["metadata"]["uid"])

    @property
    def gang(self) -> Gang | None:
        """The gang that its labels name."""
        metadata = self.pod["metadata"]
        name = metadata.get("labels", {}).get(keys.POD_GROUP_NAME)
        return (metadata["namespace"], name) if name else None

    @property
    def size(self) -> int:
        """How many members its gang has."""
        return int(self.pod["metadata"]["labels"][keys.POD_GROUP_MIN_AVAILABLE])

    @property
    def bound(self) -> str:
        """The node of a pod that runs there, or is about to."""
        return "" if self.gone else str(self.pod["spec"].get("nodeName", ""))

    @property
    def ended(self) -> bool:
        """It needs no GPUs any more."""
        return self.gone or self.pod.get("status", {}).get("phase") in _ENDED

    @property
    def evicted(self) -> bool:
        """It was evicted by the Eviction API."""
        conditions = self.pod.get("status", {}).get("conditions", ())
        return any(each["type"] == "DisruptionTarget" for each in conditions)

    @property
    def holds(self) -> tuple[Gpu, ...]:
        """What it has."""
        return () if self.ended else gpus(self.pod)

    def __str__(self) -> str:
        metadata = self.pod["metadata"]
        term = metadata.get("annotations", {}).get(keys.TERM)
        phase = "gone" if self.gone else self.pod.get("status", {}).get("phase")
        version = metadata.get("resourceVersion")
        return (
            f"{self.at:.3f} {version} {self.key} {self.uid}: {phase} on {self.bound or 'no node'},"
            f" {gpus(self.pod)} by term {term}"
        )


def _state(pod: Object) -> tuple[str, str]:
    return pod["metadata"]["uid"], pod["metadata"]["resourceVersion"]


def gpus(pod: Object) -> tuple[Gpu, ...]:
    """Return the GPUs in a pod's record; none where NVIDIA's plugin chooses them."""
    text = pod["metadata"].get("annotations", {}).get(keys.ALLOCATION)
    if text is None:
        return ()
    record = json.loads(text)
    return tuple((record["node"], gpu["i"]) for gpu in record["gpus"] or ())


def asked(pod: Object) -> int:
    """Return how many whole GPUs a pod asks for."""
    limits = (one.get("resources", {}).get("limits", {}) for one in pod["spec"]["containers"])
    names = keys.GPU_WHOLE, keys.NVIDIA_GPU
    return sum(int(limit.get(name, 0)) for limit in limits for name in names)


@dataclass(slots=True)
class History(Background):
    """Use it in `with`: it watches while the block runs."""

    api: Api
    writes: list[Write] = field(default_factory=list)
    lost: str = ""
    """Why something may be missing."""
    _present: dict[str, Write] = field(default_factory=dict)
    _version: str = ""

    def _prepare(self) -> None:
        listed = self.api.get(_PODS)
        for pod in listed["items"]:
            self._note(Write(time.monotonic(), pod, False))
        self._version = listed["metadata"]["resourceVersion"]

    def catch_up(self) -> None:
        """Return when the pods as they are now were seen."""
        wait_until(self._is_level, "the watch has seen all writes", 120)

    def _is_level(self) -> bool:
        listed = {_state(pod) for pod in self.api.get(_PODS)["items"]}
        return listed == {_state(write.pod) for write in self.present()}

    def present(self) -> list[Write]:
        """Return the pods that are there, as they were written last."""
        return list(self._present.copy().values())

    # ---- What is judged.

    def held_twice(self) -> list[str]:
        """Say which GPUs were given to a pod while another one had them."""
        holders: dict[Gpu, str] = {}
        held: dict[str, tuple[Gpu, ...]] = {}
        found = []
        for write in self.writes:
            for gpu in held.pop(write.uid, ()):
                if holders.get(gpu) == write.uid:
                    del holders[gpu]
            found += [
                f"{gpu} given to {write.key}, which {holders[gpu]} has"
                for gpu in write.holds
                if holders.setdefault(gpu, write.uid) != write.uid
            ]
            if write.holds:
                held[write.uid] = write.holds
        return found

    def misplaced(self) -> list[str]:
        """Say which pods with GPUs run elsewhere than recorded, or have more or fewer GPUs."""
        return sorted(
            {
                f"{write.key} on {write.bound} has {write.holds}, asked for {asked(write.pod)}"
                for write in self.writes
                if write.bound and write.gang and asked(write.pod) and not write.ended
                if [write.bound] * asked(write.pod) != [node for node, _ in write.holds]
            }
        )

    def overbooked(self, gpus: int) -> list[str]:
        """Say after which writes the pods of a node ask for more than its GPUs, recorded or not."""
        held: dict[str, tuple[str, int]] = {}
        taken: Counter[str] = Counter()
        found = []
        for write in self.writes:
            node, count = held.pop(write.uid, ("", 0))
            taken[node] -= count
            if write.bound and not write.ended:
                held[write.uid] = write.bound, asked(write.pod)
                taken[write.bound] += asked(write.pod)
                if taken[write.bound] > gpus:
                    found.append(f"{write.key} on {write.bound}: {taken[write.bound]} GPUs")
        return found

    def partly_bound(self) -> dict[Gang, float]:
        """Return how long each gang was bound in part at most, before all of it was [s]."""
        longest: dict[Gang, float] = defaultdict(float)
        for gang, since, until in self._partial():
            longest[gang] = max(longest[gang], until - since)
        return dict(longest)

    def _partial(self) -> Iterator[tuple[Gang, float, float]]:
        """Yield when a first member of a gang was bound, and when all or none were.

        A gang that ends is not bound in part: its members leave one after the other.
        """
        bound: dict[Gang, set[str]] = defaultdict(set)
        since: dict[Gang, float] = {}
        whole: set[Gang] = set()
        for write in self.writes:
            gang = write.gang
            if gang is None or not asked(write.pod):
                continue
            if write.bound and not write.ended:
                bound[gang].add(write.uid)
            else:
                bound[gang].discard(write.uid)
            count = len(bound[gang])
            if count == 0:
                whole.discard(gang)
            if count >= write.size:
                whole.add(gang)
            if count == 0 or gang in whole:
                if gang in since:
                    yield gang, since.pop(gang), write.at
            elif gang not in since:
                since[gang] = write.at
        for gang, at in since.items():
            yield gang, at, time.monotonic()

    def creations(self, namespace: str) -> Counter[str]:
        """Return how many pods were made under each name."""
        made = {write.uid: write.pod["metadata"] for write in self.writes}
        return Counter(one["name"] for one in made.values() if one["namespace"] == namespace)

    def evictions(self, namespace: str) -> Counter[str]:
        """Return how many pods of each name were evicted, by their condition."""
        evicted = {write.uid: write.pod["metadata"] for write in self.writes if write.evicted}
        return Counter(one["name"] for one in evicted.values() if one["namespace"] == namespace)

    def _run(self) -> None:
        while not self._over.is_set() and not self.lost:
            try:
                self._watch()
            except (ApiError, OSError, ValueError):
                # The API server is away, also in the middle of a line, or was silent for long.
                self._over.wait(0.1)

    def _watch(self) -> None:
        query = {"watch": "1", "allowWatchBookmarks": "true", "resourceVersion": self._version}
        with closing(self.api.lines(_PODS, 2, **query)) as lines:
            for line in lines:
                event = json.loads(line)
                pod = event["object"]
                if event["type"] == "ERROR":
                    if pod["code"] == _GONE:
                        self.lost = pod["message"]
                    return
                if event["type"] != "BOOKMARK":
                    self._note(Write(time.monotonic(), pod, event["type"] == "DELETED"))
                self._version = pod["metadata"]["resourceVersion"]
                if self._over.is_set():
                    return

    def _note(self, write: Write) -> None:
        self.writes.append(write)
        if write.gone:
            self._present.pop(write.uid, None)
        else:
            self._present[write.uid] = write
