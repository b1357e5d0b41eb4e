"""Gangs and single pods on claims nodes: kube-scheduler allocates the GPUs that Linkwise chose."""

from itertools import combinations

import pytest
from controlplane.claims_nodes import recorded
from controlplane.dra import claims_of
from controlplane.gangs import gang_labels, jobs_of, unmarked_job, wait_for_event, wait_for_phase
from controlplane.pods import container, gates
from controlplane.process import wait_for, wait_until

from linkwise.cluster import keys
from linkwise.topology import catalogue
from linkwise.topology.machine import mask_of
from linkwise.topology.table import table_of

DGX = table_of(catalogue.entry("dgx1-v100").machine)
PATIENCE = 120

pytestmark = pytest.mark.versions


def bandwidth(gpus):
    return DGX.bandwidth(mask_of(gpus))


def best(size, free=range(8)):
    """Return the bandwidth of the best set of so many free GPUs of one node."""
    return max(map(bandwidth, combinations(free, size)))


def splits_in_pairs(gpus):
    if not gpus:
        yield ()
        return
    first, rest = gpus[0], gpus[1:]
    for other in rest:
        for more in splits_in_pairs(tuple(one for one in rest if one != other)):
            yield ((first, other), *more)


def placed(claims, pods, prefix, count):
    """Wait until pods are bound with the GPUs of their records; return those, by pod.

    Returns the node and the indices of the GPUs of each pod whose name begins so.
    """

    def agreed():
        made = pods.all()
        records = {n: held for n, held in recorded(pods).items() if n.startswith(prefix)}
        allocated = claims.allocated(pods.namespace)
        if len(records) != count or any(not made[n]["spec"].get("nodeName") for n in records):
            return None
        return records if all(allocated.get(n) == held for n, held in records.items()) else None

    records = wait_for(agreed, f"{count} pods {prefix}* have the GPUs of their records", PATIENCE)
    made = pods.all()
    found = {}
    for name, uuids in records.items():
        node = made[name]["spec"]["nodeName"]
        found[name] = node, {i for i, gpu in enumerate(claims.gpus[node]) if gpu.uuid in uuids}
        assert len(found[name][1]) == len(uuids)
    return found


def asking(name, workers, each):
    """Return an unmarked MPIJob whose workers ask for `nvidia.com/gpu`."""
    job = unmarked_job("v1", name, workers, each)
    worker = job["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    worker["resources"]["limits"][keys.NVIDIA_GPU] = worker["resources"]["limits"].pop(
        keys.GPU_WHOLE
    )
    return job


@pytest.mark.usefixtures("training_operator")
def test_an_mpi_job_of_four_times_two_has_one_node_and_the_best_pairs(claims, pods, machines):
    machines(2)
    pods.api.create(jobs_of(pods.namespace), asking("train", 4, 2))

    members = placed(claims, pods, "train-worker", 4)

    gang = wait_for_phase(pods, "train", "Placed", members="4/4")
    assert len({node for node, _ in members.values()}) == 1
    pairs = [gpus for _, gpus in members.values()]
    assert sorted(set().union(*pairs)) == list(range(8))
    best_split = max(min(map(bandwidth, split)) for split in splits_in_pairs(tuple(range(8))))
    assert min(map(bandwidth, pairs)) == best_split
    assert gang["status"]["bandwidth"] == gang["spec"]["plan"]["bestPossible"]
    wait_until(lambda: "train-launcher" in pods.bound(), "the launcher is bound", PATIENCE)
    assert "resourceClaims" not in pods.all()["train-launcher"]["spec"]


@pytest.mark.usefixtures("training_operator")
def test_an_mpi_job_of_two_times_eight_has_two_whole_nodes(claims, pods, machines):
    nodes = machines(2)
    pods.api.create(jobs_of(pods.namespace), asking("train", 2, 8))

    members = placed(claims, pods, "train-worker", 2)

    assert {node for node, _ in members.values()} == set(nodes)
    assert all(gpus == set(range(8)) for _, gpus in members.values())


@pytest.mark.usefixtures("training_operator")
def test_a_pytorch_job_has_one_of_the_best_sets_of_four(claims, pods, machines):
    machines(1)
    template = {"spec": {"containers": [container({keys.NVIDIA_GPU: 1}, "pytorch")]}}
    roles = {
        "Master": {"replicas": 1, "template": template},
        "Worker": {"replicas": 3, "template": template},
    }
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "bert"},
        "spec": {"pytorchReplicaSpecs": roles},
    }
    pods.api.create(f"/apis/kubeflow.org/v1/namespaces/{pods.namespace}/pytorchjobs", job)

    members = placed(claims, pods, "bert-", 4)

    assert bandwidth(set().union(*(gpus for _, gpus in members.values()))) == best(4)


def test_each_pod_of_a_stateful_set_has_one_of_the_best_sets_of_four(claims, pods, machines):
    machines(1)
    labels = {"app": "ring", **gang_labels("ring", 2)}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [container({keys.NVIDIA_GPU: 4})]},
    }
    spec = {
        "replicas": 2,
        "podManagementPolicy": "Parallel",
        "serviceName": "ring",
        "selector": {"matchLabels": {"app": "ring"}},
        "template": template,
    }
    path = f"/apis/apps/v1/namespaces/{pods.namespace}/statefulsets"
    pods.api.create(path, {"metadata": {"name": "ring"}, "spec": spec})

    members = placed(claims, pods, "ring-", 2)

    assert [bandwidth(gpus) for _, gpus in members.values()] == [best(4), best(4)]


def test_single_pods_have_the_best_free_gpus_and_containers_their_own(claims, pods, machines):
    machines(1)
    made = pods.create({keys.NVIDIA_GPU: 1}, {}, {keys.NVIDIA_GPU: 2}, name="first")
    assert gates(made) == [keys.GANG]
    limits = [one["resources"].get("limits", {}) for one in made["spec"]["containers"]]
    assert not any(keys.NVIDIA_GPU in each for each in limits)

    _, first = placed(claims, pods, "first", 1)["first"]
    assert bandwidth(first) == best(3)
    pods.create({keys.NVIDIA_GPU: 3}, name="second")
    _, second = placed(claims, pods, "second", 1)["second"]

    assert bandwidth(second) == best(3, set(range(8)) - first)
    claim = next(
        one
        for one in pods.api.get(claims_of(pods.namespace))["items"]
        if [user["name"] for user in one["status"]["reservedFor"]] == ["first"]
    )
    results = claim["status"]["allocation"]["devices"]["results"]
    assert sorted(one["request"] for one in results) == ["container-0", *["container-2"] * 2]
    assert [one["kind"] for one in claim["metadata"]["ownerReferences"]] == ["Pod"]


def test_a_switched_machine_is_known_by_its_product(claims, pods, machines):
    machines(1, "dgx-h100")
    pods.create({keys.NVIDIA_GPU: 4}, name="pod")

    _, gpus = placed(claims, pods, "pod", 1)["pod"]

    assert len(gpus) == 4
    table = table_of(catalogue.entry("dgx-h100").machine)
    assert table.bandwidth(mask_of(gpus)) == max(
        table.bandwidth(mask_of(four)) for four in combinations(range(8), 4)
    )


# ---- Gangs that are refused.


@pytest.fixture
def quota(pods):
    """Limits the GPUs of the namespace; no controller counts what exists, so its status is set."""
    path = f"/api/v1/namespaces/{pods.namespace}/resourcequotas"
    name = f"requests.{keys.NVIDIA_GPU}"

    def limit(count):
        body = {"metadata": {"name": "gpus"}, "spec": {"hard": {name: str(count)}}}
        pods.api.create(path, body)
        status = {"hard": {name: str(count)}, "used": {name: "0"}}
        pods.api.patch(f"{path}/gpus/status", {"status": status})

    yield limit
    pods.api.delete(f"{path}/gpus")


def test_of_a_gang_over_quota_at_its_third_claim_nothing_is_left_over(
    claims, pods, machines, quota
):
    machines(1)
    quota(2)
    for index in range(8):
        pods.create({keys.NVIDIA_GPU: 1}, name=f"bert-{index}", labels=gang_labels("bert", 8))

    wait_for_event(pods, "GangWaiting", "exceeded quota")

    wait_until(lambda: not pods.api.get(claims_of(pods.namespace))["items"], "no claim is left")
    assert all(gates(pod) == [keys.GANG] for pod in pods.all().values())
    assert recorded(pods) == {}
    path = f"/api/v1/namespaces/{pods.namespace}/resourcequotas/gpus"
    # No controller counts down: an attempt amid this change may leave some of its claims counted.
    hard = {f"requests.{keys.NVIDIA_GPU}": "1000"}
    pods.api.patch(path, {"spec": {"hard": hard}})
    pods.api.patch(f"{path}/status", {"status": {"hard": hard, "used": dict.fromkeys(hard, "0")}})
    members = placed(claims, pods, "bert-", 8)
    assert len(set().union(*(gpus for _, gpus in members.values()))) == 8
