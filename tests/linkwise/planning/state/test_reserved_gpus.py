from support.builders import exact

from linkwise.cluster.account.node_ledger import Holding
from linkwise.cluster.gang import GangKey
from linkwise.planning.state.reserved_gpus import Place, ReservedGPUs, single_places

GANG = GangKey("team", "bert", "job")


class Name(str):
    """A name of a node that counts how often it is compared."""

    __slots__ = ()
    __hash__ = str.__hash__
    compared = 0

    def __eq__(self, other):
        Name.compared += 1
        return str(self) == str(other)


def places_on(nodes):
    """Return eight places on each node."""
    return [
        place._replace(node=Name(place.node))
        for i in range(nodes)
        for place in single_places(f"n{i}", Holding(f"p{i}", f"p{i}", exact(*range(8))))
    ]


def test_the_work_is_linear_in_the_gpus_of_a_gang():
    def comparisons(nodes):
        reserved, before = ReservedGPUs(lambda _: None), Name.compared
        reserved.set(GANG, 0, tuple(places_on(nodes)))
        reserved.set(GANG, 0, tuple(reversed(places_on(nodes))))
        reserved.set(GANG, 1, tuple(places_on(nodes)[1:]))
        return Name.compared - before

    assert comparisons(64) <= 20 * comparisons(4)


def test_of_a_changed_reservation_what_stays_is_not_counted_again():
    changed = []
    reserved, places = ReservedGPUs(changed.append), places_on(2)
    reserved.set(GANG, 0, tuple(places[:8]))
    changed.clear()

    reserved.set(GANG, 0, tuple(places_on(2)[4:]))

    assert set(changed) == {*places[:4], *places[8:]}
    assert reserved.of(GANG) == tuple(places[4:])
    assert all(isinstance(place, Place) for place in changed)
