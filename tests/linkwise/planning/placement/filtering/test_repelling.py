"""The anti-affinity of running pods is bounded, and no namespace uses up the bounds of others."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import a_node, a_snapshot

from linkwise.cluster.account.node_ledger import Holding
from linkwise.cluster.objects.affinity import LabelSelector
from linkwise.cluster.objects.label_match import label_match
from linkwise.cluster.requests.neighbors.neighbor import Neighbor
from linkwise.cluster.requests.neighbors.rules import PodTerm, Selected
from linkwise.planning.placement.filtering import repelling
from linkwise.planning.placement.filtering.repelling import (
    NAMESPACE_TERMS_MAX,
    NODE_TERMS_MAX,
    TERMS_MAX,
    repelling_of,
)
from linkwise.planning.placement.state.node_cache import DeadlineExceeded


def a_term(name):
    return PodTerm(Selected(None, label_match(LabelSelector({"app": name}), {})), "host")


def holdings(placed):
    """Return pods, each as the node, namespace and names of the terms that it has."""
    for k, (node, namespace, *names) in enumerate(placed):
        seen = Neighbor(namespace, repels=tuple(map(a_term, names)))
        yield node, Holding(f"{namespace}/p{k}", f"p{k}", neighbor=seen)


def a_cluster(*placed, nodes=2):
    snapshot = a_snapshot(*(a_node(f"n{i}") for i in range(nodes)))
    return snapshot.hold_all(holdings(placed))


def compared(snapshot):
    found = repelling_of(snapshot)
    return set(found.sets) if found else set()


def nodes_of(snapshot, name):
    found = repelling_of(snapshot)
    return {row for row, place in enumerate(found.place) if place in found.sets[a_term(name)]}


def a_flood(terms, nodes):
    return [(f"n{i % nodes}", "flood", f"flood-{i}") for i in range(terms)]


def test_terms_are_known_with_their_nodes():
    snapshot = a_cluster(
        ("n0", "a", "x"), ("n0", "b", "x", "y"), ("n1", "a", "y"), ("n2", "a", "y"), nodes=4
    )

    assert nodes_of(snapshot, "x") == {0}
    assert nodes_of(snapshot, "y") == {0, 1, 2}
    assert repelling_of(snapshot).keys == {"app"}


@pytest.mark.parametrize(
    ("nodes", "flood"),
    [
        pytest.param(1, 2 * NODE_TERMS_MAX, id="on one node"),
        pytest.param(20, 10 * NAMESPACE_TERMS_MAX, id="on many nodes"),
    ],
)
def test_many_terms_of_one_namespace_do_not_hide_those_of_another(nodes, flood):
    few = [(f"n{i % nodes}", "default", f"own-{i}") for i in range(20)]
    snapshot = a_cluster(*a_flood(flood, nodes), *few, nodes=nodes)

    found = compared(snapshot)

    assert {a_term(f"own-{i}") for i in range(20)} <= found
    assert len(found) <= 20 + NAMESPACE_TERMS_MAX


def test_many_namespaces_with_many_terms_do_not_hide_those_of_another():
    spaces = 2 * TERMS_MAX // NAMESPACE_TERMS_MAX
    flood = [
        (f"n{i % 50}", f"flood-{space}", f"{space}-{i}")
        for space in range(spaces)
        for i in range(NAMESPACE_TERMS_MAX)
    ]
    snapshot = a_cluster(*flood, ("n0", "default", "own"), nodes=50)

    assert a_term("own") in compared(snapshot)
    assert len(compared(snapshot)) == TERMS_MAX


counts = st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 12), min_size=1)


@given(counts=counts, most=st.integers(1, 30), most_of_one=st.integers(1, 8))
def test_namespaces_share_what_is_compared(counts, most, most_of_one):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repelling, "TERMS_MAX", most)
        patch.setattr(repelling, "NAMESPACE_TERMS_MAX", most_of_one)
        placed = [
            (f"n{i}", one, f"{one}{i}") for one, count in counts.items() for i in range(count)
        ]
        names = {a_term(name): one for _, one, name in placed}
        taken = Counter(names[term] for term in compared(a_cluster(*placed, nodes=12)))

    wanted = {one: min(count, most_of_one) for one, count in counts.items()}
    assert taken.total() == min(most, sum(wanted.values()))
    for one, count in wanted.items():
        # One that lacks some has no fewer than any other, but for what cannot be divided.
        assert taken[one] == count or taken[one] + 1 >= max(taken.values())


def test_only_nodes_that_changed_are_read_again(monkeypatch):
    snapshot = a_cluster(*a_flood(30, 10), nodes=10)
    repelling_of(snapshot)
    read, terms_on = [], repelling._terms_on
    monkeypatch.setattr(
        repelling, "_terms_on", lambda node: read.append(node.node.name) or terms_on(node)
    )

    repelling_of(snapshot.hold_all(holdings([("n3", "default", "own")])))

    assert read == ["n3"]


def test_terms_that_no_node_has_any_more_are_not_kept():
    snapshot = a_cluster(nodes=3)
    for i in range(20):
        changed = snapshot.hold_all(holdings([("n0", "flood", f"f{i}"), ("n1", "default", "own")]))
        assert len(compared(changed)) == 2
        assert len(changed.cache.kept) == 2


def test_a_copy_of_the_values_of_nodes_has_the_terms():
    snapshot = a_cluster(("n0", "default", "own"))
    repelling_of(snapshot)
    snapshot.cache.kept.clear()

    later = snapshot.hold_all(holdings([("n1", "default", "other")]))

    assert compared(later) == {a_term("own"), a_term("other")}


def test_reading_terms_ends_with_the_time():
    snapshot, asked = a_cluster(*a_flood(30, 10), nodes=10), []

    def is_over():
        asked.append(None)
        return len(asked) > limit

    with snapshot.cache.deadline(is_over):
        limit = 1_000
        repelling_of(snapshot)
        # Ten nodes, ten sets to read, and ten to compare.
        assert len(asked) >= 30
    for last in range(len(asked) - 1):
        fresh, limit = a_cluster(*a_flood(30, 10), nodes=10), last
        asked.clear()
        with fresh.cache.deadline(is_over), pytest.raises(DeadlineExceeded):
            repelling_of(fresh)
