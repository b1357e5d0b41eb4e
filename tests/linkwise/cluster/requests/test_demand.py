import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkwise.cluster.requests.demand import (
    EVERY_PORT,
    Demand,
    HostPort,
    PortsTaken,
    largest_demand,
    total_demand,
)

_ports = st.just(EVERY_PORT) | st.builds(
    HostPort,
    st.sampled_from(("", "10.0.0.1", "10.0.0.2")),
    st.sampled_from(("TCP", "UDP")),
    st.integers(1, 3),
)


@pytest.mark.parametrize(
    ("one", "other", "clash"),
    [
        (("", "TCP", 80), ("", "TCP", 80), True),
        (("", "TCP", 80), ("10.0.0.1", "TCP", 80), True),
        (("10.0.0.1", "TCP", 80), ("10.0.0.1", "TCP", 80), True),
        (("10.0.0.1", "TCP", 80), ("10.0.0.2", "TCP", 80), False),
        (("", "TCP", 80), ("", "UDP", 80), False),
        (("", "TCP", 80), ("", "TCP", 81), False),
    ],
    ids=str,
)
def test_ports_conflict_on_the_same_address_protocol_and_number(one, other, clash):
    assert PortsTaken([HostPort(*one)]).conflict({HostPort(*other)}) is clash
    assert PortsTaken([HostPort(*other)]).conflict({HostPort(*one)}) is clash


@given(st.frozensets(_ports, max_size=6), st.frozensets(_ports, max_size=6))
def test_two_sets_of_ports_conflict_where_two_of_them_do(some, others):
    def conflict(one, other):
        if EVERY_PORT in (one, other):
            return True
        same = (one.protocol, one.port) == (other.protocol, other.port)
        return same and (one.ip == other.ip or "" in (one.ip, other.ip))

    expected = any(conflict(one, other) for one in some for other in others)
    assert PortsTaken(some).conflict(others) is expected


demands = st.builds(
    lambda cpu, port, others: Demand(
        cpu, cpu << 20, frozenset({HostPort("", "TCP", port)}), tuple(sorted(others.items()))
    ),
    st.integers(0, 9),
    st.integers(1, 3),
    st.dictionaries(st.sampled_from(["ephemeral-storage", "rdma/hca"]), st.integers(1, 9)),
)


@given(st.lists(demands, min_size=1, max_size=5))
def test_demands_add_up_and_have_a_maximum_by_resource(several):
    total, largest = total_demand(several), largest_demand(several)

    assert total.ports == largest.ports == frozenset().union(*(one.ports for one in several))
    assert [*total.others] == sorted(total.others)
    for amount in (
        lambda one: one.cpu,
        lambda one: one.memory,
        lambda one: one.amount("rdma/hca"),
        lambda one: one.amount("ephemeral-storage"),
    ):
        assert amount(total) == sum(map(amount, several))
        assert amount(largest) == max(map(amount, several))
    assert all(amount for _, amount in (*total.others, *largest.others))


def test_no_demands_add_up_to_nothing():
    assert total_demand([]) == Demand()
