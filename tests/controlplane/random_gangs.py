"""Create and end many gangs of mixed sizes at random, on nodes of eight GPUs each."""

import time
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from random import Random

from controlplane.api import ApiError
from controlplane.gangs import make_gang
from controlplane.history import History, Write
from controlplane.pods import Pods
from controlplane.process import NotReadyError, wait_until

from linkwise.planning.gang.crd import gangs_of

PASSING = "apiVersion: linkwise.dev/v1alpha1\nkind: Policy\ngangs: {ageingMinutes: 600}\n"
"""The policy under which smaller gangs always pass larger ones, however slow the machine is."""
_CARDS = 8
_CLIENTS = 3
_PATIENCE = 120
"""Until the scorer has seen and done what it can, also where it has to be followed first [s]."""
_SHAPES = (
    *((workers, 1) for workers in (1, 2, 3, 4, 8, 16)),
    *((workers, 2) for workers in (2, 3, 4, 6)),
    *((workers, 4) for workers in (1, 2, 3)),
    *((workers, 8) for workers in (1, 2, 4)),
)
"""Workers, and GPUs of each."""


@dataclass
class Crowd:
    """Gangs that users submit, and end at random."""

    pods: Pods
    history: History
    nodes: tuple[str, ...]
    random: Random
    shapes: dict[str, tuple[int, int]] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    ran: set[str] = field(default_factory=set)
    """Those that were seen with all members bound."""

    def come_and_end(self, gangs: int, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Create more gangs, and meanwhile end some of all at random.

        Args:
            gangs: How many.
            meanwhile: Called repeatedly until all are created.
        """
        there = len(self.shapes)
        new = {f"g{there + i}": self.random.choice(_SHAPES) for i in range(gangs)}
        self.shapes.update(new)
        with ThreadPoolExecutor(_CLIENTS) as clients:
            submitted = [clients.submit(self._submit, gang) for gang in new]
            while not all(one.done() for one in submitted):
                self._end_some()
                meanwhile()
                time.sleep(0.5)
        for one in submitted:
            one.result()

    def run_out(self) -> None:
        """End one gang after the other; after each, wait until all gangs that fit are placed.

        Raises:
            NotReadyError: A gang that fits was not placed in time.
        """
        self._all_is_placed_that_fits()
        while running := self._whole():
            self._end(self.random.choice(running))
            self._all_is_placed_that_fits()

    def _all_is_placed_that_fits(self) -> None:
        # Until the end of a gang was seen, there seems to be no room.
        self.history.catch_up()
        try:
            wait_until(lambda: not self._late(), "nothing waits that would fit", _PATIENCE)
        except NotReadyError as error:
            late = {gang: (self.shapes[gang], self._reasons(gang)) for gang in self._late()}
            raise NotReadyError(f"{error}: {late} {self.history.lost}") from None

    def _reasons(self, gang: str) -> list[str]:
        """Return why a gang waits: the reason of its Gang, and that of the scheduler."""
        gangs = self.pods.api.get(gangs_of(self.pods.namespace))["items"]
        mine = [one for one in gangs if one["metadata"]["name"].startswith(f"{gang}-")]
        pods = [write.pod for write in self._members().get(gang, ())]
        conditions = [
            pod["status"].get("conditions") for pod in pods if not pod["spec"].get("nodeName")
        ]
        return [str(one.get("status")) for one in mine] + [str(one) for one in conditions]

    def _submit(self, gang: str) -> None:
        """Create the members of a gang, again where the API server was away."""
        for index in range(self.shapes[gang][0]):
            wait_until(lambda index=index: self._is_made(gang, index), "it is made", _PATIENCE)

    def _is_made(self, gang: str, index: int) -> bool:
        try:
            make_gang(self.pods, gang, *self.shapes[gang], [index])
        except ApiError as error:
            # It was created, but the response was lost.
            return error.status == 409
        except OSError:
            return False
        return True

    def _end_some(self) -> None:
        """End a tenth of those that run, and now and then one that waits or is being placed.

        Of these no more than a tenth, however long the machine takes.
        """
        for gang in self._whole():
            if self.random.random() < 0.1:
                self._end(gang)
        if self.random.random() < 0.1 and len(self.ended - self.ran) < len(self.shapes) / 10:
            others = [gang for gang in self._members() if gang not in self.ran]
            if others:
                self._end(self.random.choice(others))

    def _end(self, gang: str) -> None:
        """Let all of a gang succeed, or delete it; again where the API server was away."""
        self.ended.add(gang)
        succeeds = gang in self.ran and self.random.random() < 0.5
        for index in range(self.shapes[gang][0]):
            wait_until(lambda index=index: self._is_ended(gang, index, succeeds), "it ends")

    def _is_ended(self, gang: str, index: int, succeeds: bool) -> bool:
        path = f"{self.pods.path}/{gang}-{index}"
        try:
            if succeeds and self.pods.api.get(path)["status"]["phase"] == "Pending":
                # Its kubelet is about to say that it runs, and would say so of one that succeeded.
                return False
            if succeeds:
                self.pods.api.patch(f"{path}/status", {"status": {"phase": "Succeeded"}})
            else:
                self.pods.api.delete(path, gracePeriodSeconds="0")
        except ApiError as error:
            # Some members of a gang that no test waits for may not exist yet.
            return error.status == 404
        except OSError:
            return False
        return True

    def _members(self) -> dict[str, list[Write]]:
        """Return the pods of each gang that did not end."""
        found: dict[str, list[Write]] = defaultdict(list)
        for write in self.history.present():
            if write.gang and write.gang[1] not in self.ended:
                found[write.gang[1]].append(write)
        return found

    def _whole(self) -> list[str]:
        """Return the gangs whose members are all bound."""
        found = [
            gang
            for gang, writes in self._members().items()
            if sum(bool(write.bound) for write in writes) == self.shapes[gang][0]
        ]
        self.ran.update(found)
        return found

    def _late(self) -> list[str]:
        """Return the gangs that are partly placed, or that wait although they fit."""
        taken = Counter(node for one in self.history.present() for node, _ in one.holds)
        free = [_CARDS - taken[node] for node in self.nodes]
        found = []
        for gang, writes in self._members().items():
            workers, each = self.shapes[gang]
            bound = sum(bool(write.bound) for write in writes)
            holds = any(write.holds for write in writes)
            room = sum(left // each for left in free)
            if bound < workers and (holds or (len(writes) == workers and room >= workers)):
                found.append(gang)
        return found


def check(history: History, commit_deadline: float) -> None:
    """Check all writes.

    Raises:
        AssertionError: A GPU had two holders, or a gang was bound in part for too long.
    """
    history.catch_up()
    assert history.lost == ""
    wrong = [*history.held_twice(), *history.misplaced()]
    assert not wrong, "\n".join([*wrong, *(str(write) for write in history.writes)])
    longest = max(history.partly_bound().values())
    assert longest < commit_deadline, f"a gang was bound in part for {longest} s"
