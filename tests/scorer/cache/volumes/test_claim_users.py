import msgspec
import pytest
from support.builders import a_held_pod

from linkwise.cluster.objects.pod import Pod
from linkwise.planning.gang.pod_info import pod_info
from scorer.cache.volumes.claim_users import ClaimUsers

DATA = ("team", "data")


def pod(name, *, claims=("data",), **spec):
    named = [{"name": one, "persistentVolumeClaim": {"claimName": one}} for one in claims]
    phase = spec.pop("phase", "Pending")
    return pod_info(msgspec.convert(a_held_pod(1, name, volumes=named, phase=phase, **spec), Pod))


@pytest.fixture
def users():
    return ClaimUsers(lambda pod: pod.volume_claims)


def test_only_pods_that_begin_or_end_to_use_a_claim_change_its_use(users):
    waiting, placed = pod("a"), pod("a", nodeName="gpu-0")
    ended = pod("a", nodeName="gpu-0", phase="Succeeded")
    assert users.update(waiting.key, None, waiting) == set()
    assert users.update(waiting.key, waiting, placed) == {DATA}
    assert users.update(waiting.key, placed, placed) == set()
    assert list(users.using(DATA)) == [waiting.key]
    assert users.update(waiting.key, placed, ended) == {DATA}
    assert not list(users.using(DATA))
    assert users.naming([DATA]) == set()


def test_pods_of_some_claims_or_of_all_are_named(users):
    first, second = pod("a"), pod("b", claims=("other",))
    for one in (first, second):
        users.update(one.key, None, one)
    assert users.naming([DATA]) == {first.key}
    assert users.naming(None) == {first.key, second.key}
    users.update(first.key, first, None)
    assert users.naming(None) == {second.key}
