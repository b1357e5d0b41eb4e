import pytest
from support.builders import an_nvswitch_machine

from scorer.cache.nodes.machine_changes import WINDOW, MachineChanges


class Node:
    """A node whose agent publishes machines."""

    def __init__(self):
        self.now, self.published = 1_000.0, 0
        self.changes = MachineChanges(lambda: self.now)
        self.publish()

    def publish(self, machine=None, *, after=0.0, is_counted=True):
        self.now += after
        self.published += 1
        new = machine or an_nvswitch_machine(2, self.published)
        self.changes.note("gpu-0", new, is_counted=is_counted)

    @property
    def left(self):
        """How long its machine is refused [s]; 0: it is used."""
        refusal = self.changes.refusal("gpu-0")
        return refusal[1] if refusal else 0


@pytest.mark.parametrize(("interval", "left"), [(10, WINDOW), (WINDOW / 2, 0)])
def test_third_change_in_the_window_is_refused(interval, left):
    node = Node()
    for _ in range(3):
        assert not node.left
        node.publish(after=interval)

    assert node.left == left


def test_machine_is_used_again_after_it_stayed_the_same_for_the_window():
    node = Node()
    for _ in range(3):
        node.publish()
    node.publish(after=WINDOW - 1)
    assert node.left == WINDOW
    node.publish(an_nvswitch_machine(2, node.published), after=WINDOW - 1)
    assert node.left == 1
    node.now += 1

    assert not node.left


def test_changes_of_the_policy_are_not_counted():
    node = Node()
    for _ in range(9):
        node.publish(is_counted=False)
        node.publish(an_nvswitch_machine(2, node.published))

    assert not node.left
