"""The order of keys; a key is written as its group and its number."""

from hypothesis import given
from hypothesis import strategies as st

from linkwise.runtime.process.fair_schedule import URGENT, FairSchedule, Limits


def schedule(running=1, of_group=None):
    return FairSchedule(lambda key: key[0], Limits(running, of_group))


def drained(schedule, now=0.0):
    """Process all keys that are due, one after the other."""
    keys = []
    while (key := schedule.take(now)) is not None:
        keys.append(key)
        schedule.finish(key)
    return keys


def test_a_key_that_is_added_often_is_processed_once():
    queue = schedule()
    for _ in range(5):
        queue.add("a1", 0.0)
    assert drained(queue) == ["a1"]


def test_groups_take_turns():
    queue = schedule()
    for key in ("a1", "a2", "a3", "b1", "c1", "b2"):
        queue.add(key, 0.0)
    assert drained(queue) == ["a1", "b1", "c1", "a2", "b2", "a3"]


def test_one_group_with_10000_keys_delays_another_by_one_key():
    queue = schedule()
    for number in range(10_000):
        queue.add(f"a{number}", 0.0)
    queue.finish(queue.take(0.0))
    queue.add("b1", 0.0)
    for _ in range(2):
        queue.finish(queue.take(0.0))
    assert "b1" not in queue


def test_a_lower_rank_comes_first():
    queue = schedule()
    for key, rank in (("a1", 2), ("a2", 1), ("a3", URGENT), ("a4", 1)):
        queue.add(key, 0.0, rank)
    assert drained(queue) == ["a3", "a2", "a4", "a1"]


def test_a_queued_key_keeps_the_lower_rank_and_the_earlier_time():
    queue = schedule()
    queue.add("a1", 5.0, 1)
    queue.add("a2", 0.0, 1)
    queue.add("a1", 0.0, 0)
    queue.add("a1", 9.0, 2)
    assert drained(queue) == ["a1", "a2"]


def test_a_delayed_key_is_taken_when_it_is_due():
    queue = schedule()
    queue.add("a1", 3.0)
    assert (queue.take(2.0), queue.time_left(2.0)) == (None, 1.0)
    assert drained(queue, 3.0) == ["a1"]


def test_a_key_is_not_taken_twice_at_the_same_time():
    queue = schedule(running=4)
    queue.add("a1", 0.0)
    assert queue.take(0.0) == "a1"
    queue.add("a1", 0.0)
    assert queue.take(0.0) is None
    queue.finish("a1")
    assert queue.take(0.0) == "a1"


def test_few_keys_of_a_group_are_taken_at_the_same_time():
    queue = schedule(running=4, of_group=2)
    for key in ("a1", "a2", "a3", "b1"):
        queue.add(key, 0.0)
    assert [queue.take(0.0) for _ in range(4)] == ["a1", "b1", "a2", None]
    queue.finish("b1")
    assert queue.take(0.0) is None
    queue.finish("a1")
    assert queue.take(0.0) == "a3"


def test_no_key_of_a_group_that_rests_is_taken():
    queue = schedule()
    for key in ("a1", "b1"):
        queue.add(key, 0.0)
    queue.rest("a", 0.0, 7.0)
    assert drained(queue) == ["b1"]
    assert queue.time_left(2.0) == 5.0
    assert drained(queue, 7.0) == ["a1"]


def test_a_full_group_is_not_looked_at_again_because_its_rest_has_ended():
    queue = schedule(running=2, of_group=1)
    queue.add("a1", 0.0)
    queue.add("a2", 0.0)
    queue.rest("a", 0.0, 7.0)
    assert (queue.take(7.0), queue.take(7.0)) == ("a1", None)
    assert queue.time_left(7.0) is None
    queue.finish("a1")
    assert queue.take(7.0) == "a2"


def test_a_key_that_is_discarded_is_not_taken():
    queue = schedule()
    queue.add("a1", 0.0)
    queue.add("a2", 5.0)
    queue.discard("a1")
    queue.discard("a2")
    assert (queue.take(9.0), queue.time_left(9.0), queue.size("a")) == (None, None, 0)


def test_a_failed_key_is_postponed_unless_it_is_urgent():
    queue = schedule()
    for key, rank in (("a1", 0), ("a2", URGENT)):
        queue.add(key, 0.0)
        queue.take(0.0)
        queue.add(key, 0.0, rank)
        queue.postpone(key, 4.0)
        queue.finish(key)
    assert drained(queue) == ["a2"]
    assert drained(queue, 4.0) == ["a1"]


def test_keys_that_are_discarded_take_no_memory():
    queue = schedule()
    for number in range(1000):
        queue.add(f"a{number}", 100.0)
        queue.discard(f"a{number}")
    assert len(queue._delayed) < 20
    assert not queue._sizes


KEYS = st.sampled_from([f"{group}{number}" for group in "abc" for number in range(3)])
TIMES = st.integers(0, 9)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), KEYS, TIMES, st.integers(-1, 2)),
        st.tuples(st.just("discard"), KEYS),
        st.tuples(st.just("rest"), KEYS, TIMES),
        st.tuples(st.just("take"), TIMES),
        st.tuples(st.just("finish"), st.integers(0, 2)),
    ),
    max_size=60,
)


class Model:
    """A schedule, and what is queued and running in it."""

    def __init__(self):
        self.schedule, self.now = schedule(running=3, of_group=2), 0.0
        self.queued, self.running = set(), []

    def add(self, key, seconds, rank):
        self.schedule.add(key, self.now + seconds, rank)
        self.queued.add(key)

    def discard(self, key):
        self.schedule.discard(key)
        self.queued.discard(key)

    def rest(self, key, seconds):
        self.schedule.rest(key[0], self.now, seconds)

    def take(self, seconds):
        self.now += seconds
        if (key := self.schedule.take(self.now)) is None:
            assert self.schedule.time_left(self.now) != 0
        else:
            assert key in self.queued - {*self.running}
            self.queued.discard(key)
            self.running.append(key)

    def finish(self, index):
        if index < len(self.running):
            self.schedule.finish(self.running.pop(index))

    def check(self):
        assert len(self.running) <= 3
        for group in "abc":
            running = [key for key in self.running if key[0] == group]
            assert len(running) <= 2
            queued = [key for key in self.queued if key[0] == group]
            assert self.schedule.size(group) == len(running) + len(queued)


@given(STEPS)
def test_all_keys_are_taken_within_the_limits_whatever_happens(steps):
    model = Model()
    for step, *arguments in steps:
        getattr(model, step)(*arguments)
        model.check()
    while model.running:
        model.finish(0)
    assert sorted(drained(model.schedule, model.now + 100)) == sorted(model.queued)
    assert model.schedule.time_left(model.now + 100) is None
