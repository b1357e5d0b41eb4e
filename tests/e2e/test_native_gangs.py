"""Kubernetes' own gangs (`spec.schedulingGroup`) on a control plane that knows them."""

import pytest
from controlplane.api import refusal
from controlplane.gangs import wait_for_phase
from controlplane.history import gpus
from controlplane.native_gangs import SIZE_CHANGES, flags, groups_of, pod_group
from controlplane.nodes import add_nodes, read_nodes
from controlplane.plane import control_plane
from controlplane.pods import Pods, gates
from controlplane.process import wait_until
from controlplane.scorer import run_scorer
from controlplane.webhook import run_webhook

from linkwise.cluster import keys

LINE = {"name": "gpu", "count": 2, "machine": "dgx1-v100", "mode": "topology"}
ROOM = {"cpu": 96, "memory": "768Gi"}

pytestmark = pytest.mark.versions


@pytest.fixture(scope="module")
def native(programs, tmp_path_factory):
    folder = tmp_path_factory.mktemp
    with (
        control_plane(folder("plane"), programs, **flags()) as plane,
        run_webhook(plane),
        run_scorer(plane, folder("scorer")),
    ):
        add_nodes(plane.api, read_nodes([{**LINE, **ROOM}]))
        yield plane


@pytest.fixture
def pods(native):
    made = native.api.create("/api/v1/namespaces", {"metadata": {"generateName": "e2e-"}})
    pods = Pods(native.api, made["metadata"]["name"])
    accounts = f"/api/v1/namespaces/{pods.namespace}/serviceaccounts"
    wait_until(lambda: bool(native.api.get(accounts)["items"]), "there is a ServiceAccount")
    yield pods
    pods.clear()


def member(pods, number):
    spec = {"schedulingGroup": {"podGroupName": "ring"}}
    return pods.create({keys.GPU_WHOLE: 4}, name=f"ring-{number}", spec=spec)


def wait_until_bound(pods, count):
    def bound():
        found = [one for one in pods.all().values() if one["spec"].get("nodeName")]
        return len(found) == count and all(len(gpus(one)) == 4 for one in found)

    wait_until(bound, f"{count} members are bound", 120)


def test_pods_of_a_pod_group_are_placed_together(pods):
    pods.api.create(groups_of(pods.namespace), pod_group("ring", 2))

    assert gates(member(pods, 0)) == [keys.GANG]
    wait_for_phase(pods, "ring", "Assembling", members="1/2")
    member(pods, 1)

    wait_until_bound(pods, 2)
    # One node has room for both, and its links are better than the network.
    assert len({one["spec"]["nodeName"] for one in pods.all().values()}) == 1


def test_size_of_a_pod_group_can_change_where_kubernetes_allows_it(pods):
    path = groups_of(pods.namespace)
    pods.api.create(path, pod_group("ring", 3))
    for number in range(2):
        member(pods, number)
    wait_for_phase(pods, "ring", "Assembling", members="2/3")
    smaller = {"spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}

    refused = refusal(lambda: pods.api.patch(f"{path}/ring", smaller))

    assert (refused == "") == SIZE_CHANGES
    if not SIZE_CHANGES:
        member(pods, 2)
    wait_until_bound(pods, 2 if SIZE_CHANGES else 3)
