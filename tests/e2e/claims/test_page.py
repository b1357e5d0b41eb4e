"""The commands of docs/claims.md, as they are printed."""

import pytest
from controlplane.claims_nodes import gets_claim
from controlplane.gangs import wait_for_phase
from controlplane.page import Page
from controlplane.pods import Pods
from controlplane.process import wait_until

from linkwise.cluster import keys

SLICES, LABEL, RULES, APPLY, CLAIMS, DELETE, WATCH, BACK = range(8)

pytestmark = pytest.mark.versions


def test_a_node_becomes_linkwises_a_gang_is_placed_and_the_node_is_given_back(plane, claims, nodes):
    page = Page(plane, "docs/claims.md")
    # Linkwise's own pods may run here, too. Their disruption budgets let the node be drained once
    # they run elsewhere.
    nodes({"name": "system", "cpu": 96, "memory": "768Gi"})
    (node,) = claims.add(1, mode="")
    home = Pods(plane.api, "default")
    (_, row) = page.run(SLICES, NODE=node).splitlines()
    assert row.split()[1] == node
    assert row.count("gpu-") >= 8

    page.run(LABEL, NODE=node)
    wait_until(lambda: node in page.run(RULES), "it is fenced")
    assert keys.PLACED in page.run(RULES)
    wait_until(lambda: gets_claim(home), "admission knows the node")
    page.run(APPLY)
    wait_for_phase(home, "mpijob-vgg16", "Placed", members="4/4")
    rows = [row.split() for row in page.run(CLAIMS).splitlines()[1:]]
    assert {row[1] for row in rows} == {f"vgg16-{index}" for index in range(4)}
    assert {row[2] for row in rows} == {node}
    assert len({row[3] for row in rows}) == 4

    page.run(DELETE)
    wait_until(lambda: len(page.run(CLAIMS).splitlines()) < 2, "the claims are gone")
    page.run(BACK, NODE=node)
    wait_until(lambda: node not in page.run(RULES), "the fence is gone")
