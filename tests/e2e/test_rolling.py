"""Replicas that end under a load of creates, with the shipped settings but for a long timeout.

There is no kube-proxy here: a relay stands for the Service. It sends new connections to replicas
that were ready when they were probed last, every 2 s as in the manifests, and leaves open ones
alone: one that was killed is sent connections until then. What a real one does better (a replica
that terminates gets no new connections immediately) is not needed.
"""

import pytest
from controlplane.api import ApiError
from controlplane.installation import run_installation
from controlplane.load import Load
from controlplane.process import wait_until
from controlplane.soak import often
from controlplane.webhook import PATIENT

from linkwise.cluster import keys

# Some of it waits for what takes a minute where nothing else runs.
pytestmark = pytest.mark.timeout(400)

LIMITS = (keys.NVIDIA_GPU, keys.GPU_WHOLE, keys.GPU_MEM)
"""The first fails open, the others closed: what they could not review is refused."""
OPEN = keys.NVIDIA_GPU


@pytest.fixture(scope="module")
def linkwise(plane):
    with run_installation(plane, replicas=2, seconds=PATIENT) as running:
        yield running


@pytest.fixture
def path(namespace):
    return f"/api/v1/namespaces/{namespace}/pods"


def body(number):
    limits = {LIMITS[number % len(LIMITS)]: "1"}
    container = {"name": "main", "image": "registry.example/none"}
    container["resources"] = {"limits": limits}
    return {"metadata": {"name": f"pod-{number}"}, "spec": {"containers": [container]}}


def asks(pod):
    (name,) = pod["spec"]["containers"][0]["resources"]["limits"]
    return name


def without_gate(pods):
    """Return the names of those that Linkwise should hold, and does not."""
    held = [{"name": keys.GANG}]
    return [
        one["metadata"]["name"]
        for one in pods
        if asks(one) != OPEN and one["spec"].get("schedulingGates") != held
    ]


def test_a_rolling_replacement_of_both_replicas_fails_no_create(plane, linkwise, path):
    before = list(linkwise.replicas)
    asked = linkwise.standby.judged

    with Load(plane.api, path, body) as load:
        load.goes_on()
        for one in before:
            linkwise.replace(one)
        load.goes_on()

    assert load.failed == []
    assert without_gate(load.created) == []
    # They ended by themselves, when no connection was open any more.
    assert [one.process.child.returncode for one in before] == [0, 0]
    assert linkwise.standby.judged == asked


def test_replicas_that_are_killed_one_after_the_other_fail_no_create(plane, linkwise, path):
    asked, kills = linkwise.standby.judged, 0

    with Load(plane.api, path, body, clients=8) as load:
        # A kill may hit no call that is under way; then the standby is not asked.
        while kills < often(2, 4) or (kills < 20 and linkwise.standby.judged == asked):
            replica = linkwise.replicas[kills % len(linkwise.replicas)]
            load.goes_on()
            linkwise.kill(replica)
            load.goes_on()
            linkwise.revive(replica)
            kills += 1
        load.goes_on()

    assert load.failed == []
    assert without_gate(load.created) == []
    assert linkwise.standby.judged > asked


def test_while_only_the_standby_runs_pods_that_fail_closed_are_created(plane, linkwise, path):
    for one in linkwise.replicas:
        linkwise.kill(one)
    try:
        assert without_gate([plane.api.create(path, body(n)) for n in (1, 2)]) == []
    finally:
        for one in linkwise.replicas:
            linkwise.revive(one)


def test_pods_are_created_while_the_standby_is_down(plane, linkwise, path):
    linkwise.kill(linkwise.standby)
    try:
        assert without_gate([plane.api.create(path, body(n)) for n in range(9)]) == []
    finally:
        linkwise.revive(linkwise.standby)


def test_pods_of_controllers_are_all_there_after_a_replica_was_killed(plane, linkwise, namespace):
    labels = {"app": "serve"}
    template = {"metadata": {"labels": labels}, "spec": body(1)["spec"]}
    spec = {"replicas": 60, "selector": {"matchLabels": labels}, "template": template}
    path = f"/apis/apps/v1/namespaces/{namespace}/replicasets"

    plane.api.create(path, {"metadata": {"name": "serve"}, "spec": spec})
    linkwise.kill(linkwise.replicas[0])
    linkwise.revive(linkwise.replicas[0])

    def made():
        return plane.api.get(f"/api/v1/namespaces/{namespace}/pods")["items"]

    wait_until(lambda: len(made()) == 60, "all pods are there", 300)
    assert without_gate(made()) == []


def test_while_no_replica_runs_pods_that_fail_open_are_created_and_others_are_not(
    plane, linkwise, path
):
    everyone = (*linkwise.replicas, linkwise.standby)
    for one in everyone:
        linkwise.kill(one)
    try:
        assert "schedulingGates" not in plane.api.create(path, body(0))["spec"]
        with pytest.raises(ApiError, match="create the pod again"):
            plane.api.create(path, body(1))
    finally:
        for one in everyone:
            linkwise.revive(one)
    assert without_gate([plane.api.create(path, body(1))]) == []
