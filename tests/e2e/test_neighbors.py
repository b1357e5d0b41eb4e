"""Gangs whose pods are spread, kept apart or held together are bound where they are planned."""

from collections import Counter

import pytest
from controlplane.gangs import make_stateful_gang, wait_until_placed
from controlplane.nodes import NODES
from controlplane.pods import container
from controlplane.process import wait_until

from linkwise.cluster import keys

pytestmark = pytest.mark.usefixtures("placing")

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
ZONE = "topology.kubernetes.io/zone"
SPEC = {"containers": [container({keys.GPU_WHOLE: 1})]}


@pytest.fixture
def hosts(plane, machines):
    """Adds nodes that have the labels of real ones, in as many zones as given."""

    def add(count, zones=1):
        for i, node in enumerate(machines(count)):
            labels = {keys.HOSTNAME: node.name, ZONE: f"zone-{i % zones}"}
            plane.api.patch(f"{NODES}/{node.name}", {"metadata": {"labels": labels}})

    return add


def spread(key, app, **more):
    rule = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule"}
    selector = {"matchLabels": {"app": app}}
    return {"topologySpreadConstraints": [{**rule, "labelSelector": selector, **more}]}


def held_together(group):
    """Return the affinity by which LeaderWorkerSet gives each group a node."""
    own = {"key": "app", "operator": "In", "values": [group]}
    others = [{"key": "app", "operator": "Exists"}, {**own, "operator": "NotIn"}]
    near, far = (
        {REQUIRED: [{"topologyKey": keys.HOSTNAME, "labelSelector": {"matchExpressions": each}}]}
        for each in ([own], others)
    )
    return {"affinity": {"podAffinity": near, "podAntiAffinity": far}}


def nodes_of(pods, gang, size):
    placed = wait_until_placed(pods, gang, size)
    return Counter(node for gpus in placed.values() for node, _ in gpus)


@pytest.mark.parametrize("more", [{}, {"nodeAffinityPolicy": "Ignore"}], ids=["honor", "ignore"])
def test_gang_is_spread_over_the_nodes_at_the_first_try(pods, hosts, history, more):
    hosts(2)

    make_stateful_gang(pods, "train", 4, {**SPEC, **spread(keys.HOSTNAME, "train", **more)})

    assert nodes_of(pods, "train", 4) == {"gpu-0": 2, "gpu-1": 2}
    history.catch_up()
    assert not history.evictions(pods.namespace)


def test_single_pods_are_spread_over_the_zones(pods, hosts):
    hosts(4, zones=2)
    template = {
        "metadata": {"labels": {"app": "serve"}},
        "spec": {**SPEC, **spread(ZONE, "serve")},
    }
    spec = {"replicas": 4, "selector": {"matchLabels": {"app": "serve"}}, "template": template}
    path = f"/apis/apps/v1/namespaces/{pods.namespace}/deployments"
    pods.api.create(path, {"metadata": {"name": "serve"}, "spec": spec})

    wait_until(lambda: len(pods.bound()) == 4, "all are bound", 60)

    zones = Counter(int(pod["spec"]["nodeName"][-1]) % 2 for pod in pods.all().values())
    assert zones == {0: 2, 1: 2}


def test_groups_that_want_a_node_of_their_own_get_one_at_the_first_try(pods, hosts, history):
    hosts(3)

    for group in ("r0", "r1", "r2"):
        make_stateful_gang(pods, group, 2, {**SPEC, **held_together(group)})

    used = [nodes_of(pods, group, 2) for group in ("r0", "r1", "r2")]
    assert all(set(each.values()) == {2} for each in used)
    assert len({node for each in used for node in each}) == 3
    history.catch_up()
    assert not history.evictions(pods.namespace)
