"""No interleaving of replicas, crashes and clock changes shows a leaf that a client rejects."""

from base64 import b64encode

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from support.certs_world import CA, CONFIGURATIONS, LEAVES, SHORT_WAIT, WAIT, World

from certs.authorities import read_authorities
from certs.authority import is_valid
from certs.rotation import Phase
from certs.transition import Action

YEAR = 365 * 86_400

STEP = st.tuples(st.just("step"), st.integers(0, 1), st.integers(1, 12))
WORK = st.tuples(st.just("work"), st.integers(0, 1), st.integers(1, 4))
DISTURBANCE = st.one_of(
    st.tuples(st.just("crash"), st.integers(0, 1), st.just(0)),
    st.tuples(st.just("pass time"), st.sampled_from((1, 100, 300, 601, 2_000)), st.just(0)),
    st.tuples(st.just("set clock"), st.sampled_from((-4_000, -100, 300, 3_000, YEAR)), st.just(0)),
    st.tuples(st.just("rotate"), st.just(0), st.just(0)),
    st.tuples(st.just("skew"), st.integers(0, 1), st.sampled_from((-YEAR, 0, 299, YEAR))),
    st.tuples(st.just("delete"), st.integers(0, 2), st.just(0)),
    st.tuples(st.just("restore bundle"), st.integers(0, 1), st.just(0)),
)
ACTIONS = st.lists(st.one_of(STEP, STEP, WORK, WORK, DISTURBANCE), min_size=5, max_size=40)


class Run:
    """Two replicas at one world, each in a pass or between two."""

    def __init__(self):
        self.world = World()
        self.world.settle()
        self.world.forget()
        self.world.request_rotation()
        self.first = {path: self.world.objects[path] for path in CONFIGURATIONS}
        self.replicas = [self.world.replica(number) for number in (0, 1)]
        self.passes = [None, None]

    def do(self, action, number, count):
        match action:
            case "step":
                self.step(number, count)
            case "work":
                self.work(number, count)
            case "crash":
                self.crash(number)
            case "pass time":
                self.world.monotonic += number
            case "set clock":
                self.world.offset += number
            case "skew":
                self.world.skews[number] = count
            case "rotate":
                self.world.request_rotation()
            case "delete":
                self.delete((CA, *LEAVES)[number])
            case "restore bundle":
                self.restore(CONFIGURATIONS[number])

    def step(self, number, count):
        """Let a replica make so many calls of the API server."""
        for _ in range(count):
            done, changes = self.passes[number] is None, len(self.world.actions)
            version = self.world.version
            if done:
                self.passes[number] = self.replicas[number].reconcile()
            try:
                self.passes[number].send(None)
            except StopIteration:
                self.passes[number] = None
            self.check_issue(changes)
            if self.world.version != version:
                assert self.world.uncovered() is None

    def work(self, number, times):
        """Let a replica finish passes, with half a wait between two."""
        for _ in range(times):
            self.step(number, 1)
            while self.passes[number]:
                self.step(number, 1)
            self.world.monotonic += WAIT / 2 + 1

    def check_issue(self, changes):
        """A CA that nobody has seen signs only where nothing works any more."""
        if Action.ISSUE in self.world.actions[changes:]:
            event("issued")
            leaves = [self.world.content(path) for path in LEAVES if path in self.world.objects]
            known = [self.world.content(path) for path in CONFIGURATIONS]
            authorities = frozenset[object]().union(*known)
            assert not all(is_valid(each, self.world.wall) for each in (*leaves, *authorities))
            # All clients reject the present leaves, so nothing is lost.
            self.world.history.clear()

    def crash(self, number):
        if self.passes[number] is not None:
            self.passes[number].close()
        self.passes[number] = None
        self.replicas[number] = self.world.replica(number)

    def delete(self, path):
        self.world.objects.pop(path, None)
        if path in LEAVES:
            # The wait is shorter, since pods that start need a certificate.
            self.world.lag = SHORT_WAIT

    def restore(self, path):
        """Write the bundle of the current CA alone, as a tool with an old copy does.

        While other leaves are served this breaks calls, whatever certs does, so it is not tried.
        """
        if CA not in self.world.objects or any(self.passes):
            return
        found = read_authorities(self.world.objects[CA]["data"])
        if found.next and found.current and not found.previous:
            alone = type(found)(found.current).bundle
            self.world.overwrite(path, b64encode(alone).decode())
            event("overwritten")


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(ACTIONS)
def test_no_leaf_is_shown_that_a_bundle_of_the_wait_does_not_cover(actions):
    running = Run()
    for action in actions:
        running.do(*action)
    for action in running.world.actions:
        event(action.value)
    # Whatever has happened, rotations end.
    running.world.skews.clear()
    phases = set()
    for _ in range(12):
        for number in (0, 1):
            running.step(number, 60)
        phases.add(running.world.settle().phase)
        running.world.monotonic += WAIT / 2 + 1
    assert Phase.STABLE in phases
