from dataclasses import replace

import msgspec
from support.builders import a_claimed_pod, a_held_pod, a_seen

from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.volumes.pod_volumes import PodVolumes
from linkwise.planning.cycle.claimants import Claimants
from linkwise.planning.gang.owners import Owners
from linkwise.planning.gang.pod_info import pod_info
from linkwise.planning.gang.unit import units_of


def a_unit(name, claim="lw-claim"):
    raw, claimed = a_held_pod(0, name), a_claimed_pod(1)
    raw["metadata"]["annotations"] = claimed["metadata"]["annotations"]
    reference = {**claimed["spec"]["resourceClaims"][0], "resourceClaimName": claim}
    raw["spec"] |= {**claimed["spec"], "resourceClaims": [reference]}
    (unit,) = units_of([pod_info(msgspec.convert(raw, Pod))], Owners({}, {}))
    return unit


def test_the_first_pod_that_names_a_claim_is_planned_for_as_long_as_it_waits():
    waiting = {"first", "second"}
    claimants = Claimants(waits=lambda pod: pod.name in waiting)
    first, second = a_unit("first"), a_unit("second")

    assert claimants.blocker(first) is None
    assert "pod first, which names claim lw-claim, too" in claimants.blocker(second)
    assert claimants.blocker(first) is None
    waiting.discard("first")
    assert claimants.blocker(second) is None


def test_little_is_kept_of_pods_that_wait_no_more():
    waiting = set()
    claimants = Claimants(waits=lambda pod: pod.name in waiting)
    for i in range(1000):
        claimants.blocker(a_unit(f"p-{i}", f"lw-{i}"))
    assert len(claimants) <= 65


def with_exclusive(name, *claims, namespace="team"):
    pod = a_seen(1, name, namespace=namespace)
    volumes = PodVolumes(exclusive=claims)
    (unit,) = units_of([replace(pod, member=replace(pod.member, volumes=volumes))], Owners({}, {}))
    return unit


def test_a_volume_for_one_pod_is_that_of_the_first_which_is_planned():
    placed = {"first"}
    volumes = Claimants(uses_volumes=lambda pod: pod.name in placed)
    first, second = with_exclusive("first", "data"), with_exclusive("second", "logs", "data")

    assert volumes.blocker(second) is None
    volumes.plan(first)
    assert "pod first, which names PersistentVolumeClaim data, too" in volumes.blocker(second)
    assert volumes.blocker(first) is None
    assert volumes.blocker(with_exclusive("other", "data", namespace="others")) is None
    placed.discard("first")
    assert volumes.blocker(second) is None


def test_little_is_kept_of_pods_that_use_their_volumes_no_more():
    volumes = Claimants(uses_volumes=lambda _: False)
    for i in range(1000):
        volumes.plan(with_exclusive(f"p-{i}", f"data-{i}"))
    assert len(volumes) <= 65
