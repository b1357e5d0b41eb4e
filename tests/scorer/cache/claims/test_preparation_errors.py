"""Events in which kubelets say that they do not prepare a pod."""

from contextlib import asynccontextmanager

import pytest
from msgspec import convert
from support.builders import a_claimed_pod
from support.servers.fake_cluster import FakeCluster, status

from linkwise.cluster.objects.pod import Pod
from linkwise.planning.gang.pod_info import pod_info
from linkwise.runtime.kube.client import Kube
from scorer.cache.claims.preparation_errors import PreparationErrors

PATH = "/api/v1/namespaces/team/events"


class Cluster(FakeCluster):
    """Counts the lists of Events, and can refuse them."""

    def __init__(self):
        super().__init__()
        self.lists = []
        self.is_refusing = False

    async def _read(self, request, place):
        self.lists.append(dict(request.query))
        return status(500, "no") if self.is_refusing else await super()._read(request, place)

    def event(self, name, message, uid="pod", **fields):
        body = {
            "metadata": {},
            "involvedObject": {"uid": uid},
            "reason": "FailedPrepareDynamicResources",
            "source": {"component": "kubelet"},
            "lastTimestamp": "2026-01-02T03:05:00Z",
            "message": message,
            **fields,
        }
        self.put(f"{PATH}/{name}", body)


@asynccontextmanager
async def reading():
    async with Cluster() as cluster, Kube(cluster.url) as kube:
        yield cluster, PreparationErrors(kube)


def pod(uid="pod"):
    raw = a_claimed_pod(1, name=uid)
    raw["metadata"] |= {"uid": uid, "namespace": "team"}
    return pod_info(convert(raw, Pod))


async def test_the_latest_event_of_a_kubelet_counts():
    async with reading() as (cluster, errors):
        cluster.event("c", "first", lastTimestamp="2026-01-02T03:04:00Z")
        cluster.event("b", "last")
        cluster.event("a", "of a tenant", source={"component": "x"}, lastTimestamp="2027-01-02")
        cluster.event("d", "mounted", reason="FailedMount", lastTimestamp="2027-01-02")
        cluster.event("e", "of another pod", uid="other", lastTimestamp="2027-01-02")
        assert not errors.is_read(pod())
        assert await errors.read([pod()], 0) == [pod()]
        assert errors.of(pod()) == "last"
        assert errors.is_read(pod())


async def test_a_text_is_short_and_printable():
    async with reading() as (cluster, errors):
        cluster.event("a", "line\n\x1b[31m" + "x" * 5000)
        await errors.read([pod()], 0)
        text = errors.of(pod())
    assert text.startswith("line\ufffd\ufffd[31mxxx")
    assert text.isprintable()
    assert len(text) == 400


async def test_a_pod_is_read_once_a_minute_and_forgotten_once_it_is_prepared():
    async with reading() as (cluster, errors):
        cluster.event("a", "why")
        await errors.read([pod()], 0)
        assert await errors.read([pod()], 59) == []
        assert len(cluster.lists) == 1
        cluster.event("a", "else")
        assert await errors.read([pod()], 60) == [pod()]
        assert errors.of(pod()) == "else"
        assert await errors.read([], 61) == []
        assert (errors.of(pod()), errors.is_read(pod())) == ("", False)


async def test_at_most_so_many_pods_are_read_in_one_pass_and_all_in_turn():
    pods = [pod(f"pod-{number}") for number in range(150)]
    async with reading() as (cluster, errors):
        for count in (64, 128, 150):
            await errors.read(pods, 0)
            assert len(cluster.lists) == count == sum(map(errors.is_read, pods))
        assert len({query["fieldSelector"] for query in cluster.lists}) == 150
        assert {query["limit"] for query in cluster.lists} == {"32"}
        # Those of others must not take the places of the kubelet's.
        assert all("source=kubelet" in query["fieldSelector"] for query in cluster.lists)


async def test_after_an_error_the_others_are_read_first_later_and_texts_stay():
    pods = [pod("pod"), pod("other")]
    async with reading() as (cluster, errors):
        cluster.event("a", "why")
        await errors.read(pods[:1], 0)
        cluster.is_refusing = True
        await errors.read(pods, 60)
        assert len(cluster.lists) == 2
        assert errors.is_read(pods[0])
        assert errors.is_read(pods[1])
        cluster.is_refusing = False
        await errors.read(pods, 61)
        assert len(cluster.lists) == 3
        assert errors.of(pods[0]) == "why"


@pytest.mark.parametrize("size", [100, 1 << 20])
async def test_an_answer_is_read_to_a_limit(size):
    async with reading() as (cluster, errors):
        cluster.event("a", "why" + "x" * size)
        await errors.read([pod()], 0)
        assert bool(errors.of(pod())) is (size == 100)
