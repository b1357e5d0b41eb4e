from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.traces import a_job, a_policy, whole_fleet

from linkwise.replay.engine import EventKind, Rules, Run
from linkwise.replay.policies.registry import POLICIES
from linkwise.topology.catalogue import entry

NICS = len(entry("dgx-h100").machine.nics)
"""Of each node."""


def a_run(nodes, policy="linkwise", shapes=()):
    fleet = whole_fleet(nodes, "dgx-h100")
    return Run(fleet, a_policy(policy, shapes=shapes), Rules(shared=False))


def starts(run, jobs):
    return {
        event.job.name: event.time for event in run.events(jobs) if event.kind is EventKind.STARTS
    }


def test_an_application_has_no_more_pods_on_a_node_than_it_allows():
    limited = {"application": "app", "most_per_node": 2}
    jobs = [a_job(f"{i}", 0, 10 + i, **limited) for i in range(5)]

    assert starts(a_run(2), jobs) == {"0": 0, "1": 0, "2": 0, "3": 0, "4": 10}


def test_pods_of_another_application_do_not_count():
    jobs = [a_job(name, 0, 10, application=name, most_per_node=1) for name in ("a", "b")]

    assert starts(a_run(1), jobs) == {"a": 0, "b": 0}


def test_the_bandwidth_of_all_nics_is_given_out_and_comes_back():
    jobs = [a_job(f"{i}", 0, 10, rdma=100 * NICS // 2) for i in range(3)]

    assert starts(a_run(1), jobs) == {"0": 0, "1": 0, "2": 10}


def test_nodes_whose_nics_are_not_known_have_no_limit_of_bandwidth():
    run = Run(whole_fleet(1, "b200"), a_policy("linkwise"), Rules(shared=False))

    assert starts(run, [a_job(f"{i}", 0, 10, rdma=100) for i in range(8)]).keys() == set("01234567")


JOBS = st.lists(
    st.builds(
        lambda submit, duration, gpus, rdma, application, most: a_job(
            f"{submit}", submit, duration, gpus=gpus, rdma=rdma, application=application,
            most_per_node=most,
        ),
        st.integers(0, 50),
        st.integers(0, 50),
        st.sampled_from([1, 2, 4, 8]),
        st.sampled_from([0, 25, 100, 400]),
        st.sampled_from("ab"),
        st.integers(0, 3),
    ),
    max_size=30,
)  # fmt: skip


@pytest.mark.parametrize("policy", sorted(POLICIES))
@given(jobs=JOBS)
@settings(max_examples=10)
def test_no_policy_exceeds_a_limit(policy, jobs):
    jobs = sorted(jobs, key=lambda job: job.submit)
    run = a_run(2, policy, tuple({job.shape for job in jobs}) or (a_job().shape,))
    rdma, pods = Counter(), Counter()
    for event in run.events(jobs):
        shape, sign = (
            event.job.shape,
            {EventKind.STARTS: 1, EventKind.LEAVES: -1}.get(event.kind, 0),
        )
        for node in event.nodes:
            rdma[node] += sign * shape.rdma
            pods[node, shape.application] += sign * bool(shape.most_per_node)
        if event.kind is EventKind.STARTS:
            (node,) = event.nodes
            assert rdma[node] <= 100 * NICS
            assert not shape.most_per_node or pods[node, shape.application] <= shape.most_per_node
    assert not any(rdma.values())
    assert not any(pods.values())
