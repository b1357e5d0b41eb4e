"""Pods whose claims wait for GPUs."""

import pytest
from msgspec import convert
from support.servers.leader_harness import Cluster

from linkwise.cluster.objects.pod import Pod
from linkwise.planning.gang.pod_info import pod_info
from linkwise.runtime.kube.client import Kube
from scorer.cache.claims.waiting_claims import WaitingClaims

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/team/resourceclaims"


def a_pod(cluster, name, *claims):
    raw = cluster.pod(name, 0, gates=())
    references = [{"name": one, "resourceClaimName": one} for one in claims]
    body = {**raw, "spec": {**raw["spec"], "resourceClaims": references}}
    return pod_info(convert(cluster.put(f"/api/v1/namespaces/team/pods/{name}", body), Pod))


def a_claim(cluster, name, of="gpu.nvidia.com"):
    spec = {"devices": {"requests": [{"name": "x", "exactly": {"deviceClassName": of}}]}}
    cluster.put(f"{CLAIMS}/{name}", {"metadata": {}, "spec": spec})


async def test_few_pods_are_read_in_a_pass_each_once_and_few_claims_of_each():
    names = [f"claim-{i}" for i in range(12)]
    async with Cluster() as cluster, Kube(cluster.url) as kube:
        for name in names:
            a_claim(cluster, name, of="nic.example.com")
        pods = [a_pod(cluster, f"pod-{i}", *names) for i in range(100)]
        found = WaitingClaims(kube)
        for count in (64, 100, 100):
            assert await found.of_gpus(pods, 0) == []
            assert len(cluster.reads) == count * (1 + 8)


@pytest.mark.parametrize("is_replaced", [False, True])
async def test_a_pod_of_the_same_name_is_another_one(is_replaced):
    async with Cluster() as cluster, Kube(cluster.url) as kube:
        a_claim(cluster, "claim")
        pod = a_pod(cluster, "pod", "claim")
        if is_replaced:
            raw = cluster["pod"]
            raw["metadata"]["uid"] = "new"
            cluster.delete("pod")
            cluster.put("/api/v1/namespaces/team/pods/pod", raw)
        found = await WaitingClaims(kube).of_gpus([pod], 0)
        assert bool(found) is not is_replaced
