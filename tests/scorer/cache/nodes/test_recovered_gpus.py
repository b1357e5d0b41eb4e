"""GPUs that have recovered from a fault get no new pods for a while."""

from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from support.builders import a_node

from scorer.cache.nodes.recovered_gpus import RecoveredGPUs

SECONDS = 60.0


class Recoveries(RuleBasedStateMachine):
    """A node whose GPUs fail and recover, beside a list of what happened."""

    def __init__(self):
        super().__init__()
        self.now, self.faulty, self.last = 0.0, frozenset(), {}
        self.recovered = RecoveredGPUs(lambda: self.now)
        self.node, self.delay = self.read()

    def read(self):
        node = a_node(cordoned=(7,))
        cards = tuple(
            replace(card, faulty=i in self.faulty, healthy=i not in self.faulty)
            for i, card in enumerate(node.cards)
        )
        return self.recovered.cordoned(replace(node, cards=cards), SECONDS)

    @rule(faulty=st.frozensets(st.integers(0, 6), max_size=4))
    def change(self, faulty):
        self.last |= dict.fromkeys(self.faulty, self.now)
        self.faulty = faulty
        self.node, self.delay = self.read()

    @rule(seconds=st.sampled_from([1.0, 30.0, 59.0, 60.0]))
    def wait(self, seconds):
        self.now += seconds
        self.last |= dict.fromkeys(self.faulty, self.now)
        self.node, self.delay = self.read()

    @rule()
    def wait_for_the_timer(self):
        if self.delay is not None:
            before = self.node.usable_mask
            self.now += self.delay
            self.last |= dict.fromkeys(self.faulty, self.now)
            self.node, self.delay = self.read()
            assert self.node.usable_mask > before

    @invariant()
    def a_gpu_is_usable_once_it_had_no_fault_for_the_time(self):
        usable = {
            i
            for i in range(7)
            if i not in self.faulty and self.now - self.last.get(i, -SECONDS) >= SECONDS
        }
        assert {i for i in range(8) if self.node.usable_mask >> i & 1} == usable


TestRecoveries = Recoveries.TestCase


def test_without_a_time_a_gpu_is_used_at_once():
    recovered = RecoveredGPUs(lambda: 0.0)
    node = a_node()
    cards = tuple(replace(card, faulty=True, healthy=False) for card in node.cards)
    assert recovered.cordoned(replace(node, cards=cards), 0.0)[0].usable_mask == 0
    assert recovered.cordoned(node, 0.0) == (node, None)
