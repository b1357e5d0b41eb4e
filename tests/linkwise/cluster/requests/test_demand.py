from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import a_container, a_pod

from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.requests.demand import (
    EVERY_PORT,
    PORTS_MAX,
    Demand,
    HostPort,
    PortsTaken,
    demand_of,
    largest_demand,
    total_demand,
)


def demand(pod: dict[str, Any]) -> Demand:
    return demand_of(msgspec.convert(pod, Pod))


def asking(cpu: str | int, name: str = "c", **fields: Any) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": {"cpu": cpu}}, **fields}


def test_a_pod_that_asks_for_nothing_takes_nothing():
    assert demand(a_pod()) == Demand()


def test_requests_of_app_containers_add_up_and_round_up():
    containers = [
        {"resources": {"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"cpu": "4"}}},
        {"resources": {"requests": {"cpu": "0.0001", "memory": "1.5"}}},
    ]

    assert demand(a_pod(containers=containers)) == Demand(101, (1 << 30) + 2)


def test_a_limit_stands_in_for_a_missing_request():
    assert demand(a_pod({"cpu": 2, "memory": "2k"})) == Demand(2000, 2000)


@pytest.mark.parametrize(
    ("init", "cpu"),
    [
        ([asking(1)], 3000),
        ([asking(5), asking(4)], 5000),
        ([asking(1, restartPolicy="Always")], 4000),
        ([asking(4, restartPolicy="Always")], 7000),
        ([asking(1, restartPolicy="Always"), asking(5)], 6000),
        ([asking(5), asking(1, restartPolicy="Always")], 5000),
    ],
    ids=[
        "small init",
        "largest init",
        "sidecar",
        "large sidecar",
        "init beside a sidecar",
        "init before a sidecar",
    ],
)
def test_init_containers_count_by_kubernetes_rule(init, cpu):
    assert demand(a_pod(containers=[asking(1), asking(2)], initContainers=init)).cpu == cpu


def test_overhead_comes_on_top():
    assert demand(a_pod({"cpu": 1}, overhead={"cpu": "250m", "memory": "64"})) == Demand(1250, 64)


@pytest.mark.parametrize("amount", ["many", "-1", ""])
def test_what_no_api_server_takes_counts_as_none(amount):
    assert demand(a_pod({"cpu": amount})).cpu == 0


def test_host_ports_of_containers_and_sidecars_are_taken():
    def opening(*ports: dict[str, Any], **fields: Any) -> dict[str, Any]:
        return a_container(ports=list(ports), **fields)

    pod = a_pod(
        containers=[
            opening({"containerPort": 80, "hostPort": 8080}, {"containerPort": 81}),
            opening({"hostPort": 53, "protocol": "UDP", "hostIP": "10.0.0.1"}),
            opening({"hostPort": 54, "hostIP": "::"}),
        ],
        initContainers=[
            opening({"hostPort": 1}),
            opening({"hostPort": 2}, restartPolicy="Always"),
        ],
    )

    assert demand(pod).ports == {
        HostPort("", "TCP", 8080),
        HostPort("10.0.0.1", "UDP", 53),
        HostPort("", "TCP", 54),
        HostPort("", "TCP", 2),
    }


def test_every_port_is_a_host_port_with_the_hosts_network():
    container = a_container(ports=[{"containerPort": 22}])

    assert demand(a_pod(containers=[container])).ports == frozenset()
    assert demand(a_pod(containers=[container], hostNetwork=True)).ports == {
        HostPort("", "TCP", 22)
    }


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


@pytest.mark.parametrize(("ports", "distinguished"), [(PORTS_MAX, True), (PORTS_MAX + 1, False)])
def test_pod_with_too_many_host_ports_uses_all_ports(ports, distinguished):
    opened = [{"hostPort": port} for port in range(1, ports + 1)]

    found = demand(a_pod(containers=[a_container(ports=opened)]))

    assert (len(found.ports) == ports) is distinguished
    assert (found.ports == {EVERY_PORT}) is not distinguished
    assert found.has_too_many_ports is not distinguished


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
