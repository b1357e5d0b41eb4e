"""Gangs on a real control plane: an unmodified kube-scheduler binds them where they are planned."""

from itertools import combinations

import pytest
from controlplane.gangs import (
    delete_pods,
    events,
    held,
    jobs_of,
    make_gang,
    mpi_job,
    unmarked_job,
    wait_for_phase,
    wait_until_held,
    wait_until_placed,
    wait_until_planned,
    where,
)
from controlplane.history import History
from controlplane.pods import Pods, container, gates
from controlplane.process import wait_until

from linkwise.cluster import keys
from linkwise.topology import catalogue
from linkwise.topology.machine import mask_of
from linkwise.topology.table import table_of

DGX = table_of(catalogue.entry("dgx1-v100").machine)
BEST_FOURS = ({0, 1, 2, 3}, {4, 5, 6, 7})
"""All links of these are NVLink, half of them double."""
PATIENCE = 120


def indices(members):
    """Return the GPUs of all members, in the order of their names, on whatever node."""
    return [index for name in sorted(members) for _, index in members[name]]


def nodes_of(members):
    return {node for taken in members.values() for node, _ in taken}


def bandwidth(gpus):
    return DGX.bandwidth(mask_of(gpus))


def test_dgx1_has_two_best_sets_of_four():
    ranked = sorted(combinations(range(8), 4), key=bandwidth, reverse=True)
    assert [set(four) for four in ranked[:2]] in (list(BEST_FOURS), list(BEST_FOURS)[::-1])
    assert bandwidth(ranked[1]) > bandwidth(ranked[2])


# ---- Without Linkwise, and with it.


@pytest.mark.usefixtures("bare", "training_operator")
def test_an_mpi_job_that_scatters_without_linkwise_is_on_one_best_set_with_it(
    plane, namespace, machines, request
):
    machines(4)
    plane.api.create(jobs_of(namespace), mpi_job("alone", 4, 1))
    workers = {f"alone-worker-{index}" for index in range(4)}

    def scattered():
        found = plane.api.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
        return {
            pod["metadata"]["name"]: pod["spec"].get("nodeName")
            for pod in found
            if pod["metadata"]["name"] in workers and pod["status"]["phase"] == "Running"
        }

    wait_until(lambda: scattered().keys() == workers, "its workers run", PATIENCE)
    assert set(scattered().values()) == {f"gpu-{index}" for index in range(4)}
    plane.api.delete(f"{jobs_of(namespace)}/alone")
    # The garbage collector looks for new kinds of owners every 30 s; nothing waits for that here.
    Pods(plane.api, namespace).clear()

    request.getfixturevalue("placing")
    pods = request.getfixturevalue("pods")
    pods.api.create(jobs_of(namespace), mpi_job("with", 4, 1))

    members = wait_until_placed(pods, "mpijob-with", 4)
    gang = wait_for_phase(pods, "mpijob-with", "Placed")
    assert len(nodes_of(members)) == 1
    assert set(indices(members)) in BEST_FOURS
    assert gang["status"]["bandwidth"] == gang["spec"]["plan"]["bestPossible"] == 55.2
    assert [owner["kind"] for owner in gang["metadata"]["ownerReferences"]] == ["MPIJob"]
    wait_until(lambda: bool(events(pods, "GangPlaced", of="MPIJob")), "an event says so", PATIENCE)
    assert len(events(pods, "GangPlaced", of="MPIJob")) == 1
    wait_until(lambda: "with-launcher" in pods.all(), "the operator creates its launcher")
    launcher = pods.all()["with-launcher"]
    assert keys.ALLOCATION not in launcher["metadata"].get("annotations", {})


# ---- MPIJobs without a mark.


@pytest.mark.usefixtures("placing", "training_operator")
def test_an_unmarked_mpi_job_is_placed_as_a_whole_or_not_at_all(pods, machines):
    machines(1)
    pods.create({keys.GPU_WHOLE: 4}, name="other")
    wait_until_held(pods, "other", 1)
    pods.api.create(jobs_of(pods.namespace), unmarked_job("v1", "train", 5, 1))

    wait_for_phase(pods, "train", "Waiting", "4 of 5 workers fit now", members="5/5")
    wait_until(lambda: pods.bound() == {"other", "train-launcher"}, "no worker is", PATIENCE)
    launcher = pods.all()["train-launcher"]
    assert (gates(launcher), launcher["spec"]["nodeName"]) == ([], "gpu-0")
    assert held(pods, "train") == {}

    delete_pods(pods, "other")
    wait_until_held(pods, "train-worker", 5)
    gang = wait_for_phase(pods, "train", "Placed", members="5/5")
    assert [owner["kind"] for owner in gang["metadata"]["ownerReferences"]] == ["MPIJob"]


@pytest.mark.usefixtures("placing", "training_operator")
def test_an_unmarked_mpi_job_is_placed_as_a_whole_on_a_node_of_nvidias_plugin(pods, nodes):
    nodes({"name": "gpu", "machine": "dgx1-v100", "cpu": 96, "memory": "768Gi"})
    pods.create({keys.NVIDIA_GPU: 4}, name="other")
    wait_until(lambda: pods.bound() == {"other"}, "kube-scheduler binds a single pod", PATIENCE)
    job = unmarked_job("v1", "train", 5, 1)
    worker = job["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    worker["resources"]["limits"][keys.NVIDIA_GPU] = worker["resources"]["limits"].pop(
        keys.GPU_WHOLE
    )
    pods.api.create(jobs_of(pods.namespace), job)

    wait_for_phase(pods, "train", "Waiting", "4 of 5 workers fit now", members="5/5")
    wait_until(lambda: pods.bound() == {"other", "train-launcher"}, "no worker is", PATIENCE)

    delete_pods(pods, "other")
    wait_for_phase(pods, "train", "Placed", members="5/5")
    workers = {f"train-worker-{index}" for index in range(5)}
    assert pods.bound() == {*workers, "train-launcher"}
    record = pods.all()["train-worker-0"]["metadata"]["annotations"][keys.ALLOCATION]
    assert '"gpus":null,"count":1' in record


@pytest.mark.usefixtures("placing", "training_operator")
def test_an_unmarked_pytorch_job_gets_the_best_gpus(pods, machines):
    machines(1)
    pods.create({keys.GPU_WHOLE: 3}, name="other")
    wait_until_held(pods, "other", 1)
    jobs = f"/apis/kubeflow.org/v1/namespaces/{pods.namespace}/pytorchjobs"
    pods.api.create(jobs, pytorch_job("train", 4))

    members = wait_until_held(pods, "train", 4)

    gang = wait_for_phase(pods, "train", "Placed", members="4/4")
    assert members.keys() == {"train-master-0", *(f"train-worker-{i}" for i in range(3))}
    assert gang["spec"]["plan"]["bandwidth"] == 55.2


@pytest.mark.usefixtures("placing", "training_operator")
def test_an_elastic_pytorch_job_starts_with_its_minimum(pods, machines):
    machines(1)
    pods.create({keys.GPU_WHOLE: 6}, name="other")
    wait_until_held(pods, "other", 1)
    jobs = f"/apis/kubeflow.org/v1/namespaces/{pods.namespace}/pytorchjobs"
    job = pytorch_job("train", 5)
    job["spec"]["elasticPolicy"] = {"minReplicas": 1, "maxReplicas": 8, "rdzvBackend": "c10d"}
    pods.api.create(jobs, job)
    wait_until_held(pods, "train", 2)

    delete_pods(pods, "other")

    wait_until_held(pods, "train", 5)


def pytorch_job(name, pods):
    """Return a PyTorchJob of a master and workers, with a GPU each, without any mark."""
    template = {"spec": {"containers": [{**container({keys.GPU_WHOLE: 1}), "name": "pytorch"}]}}
    roles = {
        "Master": {"replicas": 1, "template": template},
        "Worker": {"replicas": pods - 1, "template": template},
    }
    head = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": name}}
    return {**head, "spec": {"pytorchReplicaSpecs": roles}}


@pytest.mark.usefixtures("placing", "training_operator")
def test_a_deleted_worker_returns_to_the_best_set_of_its_gang(pods, machines):
    machines(2)
    pods.api.create(jobs_of(pods.namespace), unmarked_job("v1", "train", 4, 1))
    members = wait_until_held(pods, "train-worker", 4)
    before = wait_for_phase(pods, "train", "Placed", members="4/4")
    # A free GPU that is worse for the gang, and better for others to be taken.
    pods.create({keys.GPU_WHOLE: 3}, name="other")
    wait_until_held(pods, "other", 1)

    delete_pods(pods, "train-worker-1")

    wait_until_planned(pods, 4)
    assert wait_until_held(pods, "train-worker", 4) == members
    after = wait_for_phase(pods, "train", "Placed", members="4/4")
    assert planned(after) == planned(before)
    for figure in ("bandwidth", "bestPossible"):
        assert after["spec"]["plan"][figure] == before["spec"]["plan"][figure] == 55.2
    for field in ("members", "held", "bandwidth", "nodes", "gpus"):
        assert after["status"][field] == before["status"][field]


def planned(gang):
    members = gang["spec"]["plan"]["members"]
    return [(member["pod"], member["node"], member["gpus"]) for member in members]


@pytest.mark.usefixtures("placing", "training_operator")
def test_an_unmarked_mpi_job_is_scaled_and_restarted(pods, machines):
    machines(1)
    path = f"{jobs_of(pods.namespace)}/train"
    pods.api.create(jobs_of(pods.namespace), unmarked_job("v1", "train", 2, 1))
    wait_until_held(pods, "train-worker", 2)
    wait_for_phase(pods, "train", "Placed", members="2/2")

    scale(pods, path, 4)
    wait_until_held(pods, "train-worker", 4)
    gang = wait_for_phase(pods, "train", "Placed", members="4/4")
    assert len(gang["spec"]["plan"]["members"]) == 4
    # The first two keep their GPUs, and the others may come one by one.
    assert gang["spec"]["plan"]["bandwidth"] > 0

    scale(pods, path, 3)
    wait_for_phase(pods, "train", "Placed", members="3/3")

    delete_pods(pods, *(f"train-worker-{index}" for index in range(3)))
    wait_until_planned(pods, 3)
    wait_until_held(pods, "train-worker", 3)
    wait_for_phase(pods, "train", "Placed", members="3/3")


def scale(pods, path, workers):
    pods.api.patch(path, {"spec": {"mpiReplicaSpecs": {"Worker": {"replicas": workers}}}})


# ---- Shapes.


@pytest.mark.usefixtures("placing")
def test_two_workers_of_four_gpus_each_have_one_of_the_two_best_sets(pods, machines):
    machines(2)
    make_gang(pods, "pair", 2, 4)
    members = wait_until_placed(pods, "pair", 2)
    assert len(nodes_of(members)) == 1
    assert {frozenset(indices({name: members[name]})) for name in members} == {
        frozenset(four) for four in BEST_FOURS
    }


@pytest.mark.usefixtures("placing")
def test_sixteen_workers_fill_two_nodes_of_three_and_neighbours_in_rank_share_a_link(
    pods, machines
):
    machines(3)
    make_gang(pods, "wide", 16, 1)
    members = wait_until_placed(pods, "wide", 16)
    by_rank = [members[f"wide-{rank}"][0] for rank in range(16)]
    halves = by_rank[:8], by_rank[8:]
    for half in halves:
        assert len({node for node, _ in half}) == 1
        ring = [index for _, index in half]
        assert sorted(ring) == list(range(8))
        assert all(linked(pair) for pair in zip(ring, ring[1:] + ring[:1], strict=True))
    assert halves[0][0][0] != halves[1][0][0]


@pytest.mark.usefixtures("placing")
def test_three_pairs_on_remaining_gpus_maximize_the_worst_pair(pods, machines):
    machines(1)
    left = (1, 2, 3, 4, 5, 7)
    fill(pods, keep_free=left)
    make_gang(pods, "three", 3, 2)

    pairs = [
        frozenset(index for _, index in taken)
        for taken in wait_until_placed(pods, "three", 3).values()
    ]

    assert frozenset().union(*pairs) == set(left)
    assert min(map(bandwidth, pairs)) == max(
        min(map(bandwidth, split)) for split in splits_in_pairs(left)
    )
    # In index order the last pair has no link of its own.
    assert min(map(bandwidth, pairs)) > min(map(bandwidth, ((1, 2), (3, 4), (5, 7))))


@pytest.mark.usefixtures("placing")
def test_a_gang_that_insists_on_nvlink_waits_for_it_and_then_fits(pods, machines):
    machines(1)
    filler = fill(pods, keep_free=(0, 5, 6))
    make_gang(pods, "strict", 3, 1, annotations={keys.LINK: "nvlink"})

    wait_for_phase(pods, "strict", "Waiting", "NVLink")
    assert where(pods, "strict") == {}

    delete_pods(pods, filler[4])
    members = wait_until_placed(pods, "strict", 3)
    assert 4 in indices(members)
    assert is_connected(indices(members))


def fill(pods, keep_free):
    """Take all GPUs of the only node but some; return who has each."""
    make_gang(pods, "filler", 8, 1)
    holders = {index: name for name, [(_, index)] in wait_until_placed(pods, "filler", 8).items()}
    delete_pods(pods, *(holders.pop(index) for index in keep_free))
    return holders


def linked(pair):
    # Of two GPUs without a link between them PCIe is all that is left.
    return bandwidth(pair) >= 20


def is_connected(gpus):
    reached, rest = set(gpus[:1]), set(gpus[1:])
    while near := {one for one in rest if any(linked((one, other)) for other in reached)}:
        reached |= near
        rest -= near
    return not rest


def splits_in_pairs(gpus):
    if not gpus:
        yield ()
        return
    first, rest = gpus[0], gpus[1:]
    for other in rest:
        for more in splits_in_pairs(tuple(one for one in rest if one != other)):
            yield ((first, other), *more)


# ---- Gangs that have to wait.


@pytest.mark.usefixtures("placing")
def test_of_two_gangs_that_need_all_gpus_one_waits_until_the_other_ends(plane, pods, machines):
    machines(2)
    first = make_gang(pods, "first", 4, 4)
    wait_until_placed(pods, "first", 4)
    make_gang(pods, "second", 4, 4)

    gang = wait_for_phase(pods, "second", "Waiting", "0 of 4 workers fit now")
    assert "needs 16 GPUs as 4 × 4 GPUs" in gang["status"]["reason"]
    assert gang["status"]["members"] == "4/4"
    wait_until(
        lambda: any(gang["status"]["reason"] in text for text in events(pods, "GangWaiting")),
        "an event says why",
        PATIENCE,
    )
    assert where(pods, "second") == {}
    described = plane.kubectl("describe", "gang", "-n", pods.namespace, gang["metadata"]["name"])
    assert gang["status"]["reason"] in described.stdout

    delete_pods(pods, *first)
    assert len(wait_until_placed(pods, "second", 4)) == 4
    wait_for_phase(pods, "second", "Placed")
    wait_until(
        lambda: any("gang second are on gpu-0" in text for text in events(pods, "GangPlaced")),
        "an event says where",
        PATIENCE,
    )


@pytest.mark.usefixtures("placing")
def test_a_gang_larger_than_the_cluster_waits_with_numbers_and_holds_nothing(pods, machines):
    machines(2)
    make_gang(pods, "huge", 5, 4)
    reason = "needs 20 GPUs as 5 × 4 GPUs; 4 of 5 workers fit now"
    gang = wait_for_phase(pods, "huge", "Waiting", reason)
    assert "plan" not in gang["spec"]
    assert not any(
        keys.ALLOCATION in pod["metadata"].get("annotations", {}) for pod in pods.all().values()
    )

    # What it would need is free for others.
    make_gang(pods, "small", 4, 4)
    assert len(wait_until_placed(pods, "small", 4)) == 4


# ---- Gangs whose pods come one by one.


@pytest.mark.usefixtures("placing")
def test_a_gang_whose_pods_come_slowly_is_placed_as_a_whole(pods, machines):
    machines(8)
    with History(pods.api) as history:
        make_gang(pods, "slow", 64, 1, range(40))
        wait_for_phase(pods, "slow", "Assembling", "40 of 64 members", "40/64")
        make_gang(pods, "slow", 64, 1, range(40, 64))
        members = wait_until_placed(pods, "slow", 64)
        history.catch_up()

    assert sorted(indices(members)) == sorted(list(range(8)) * 8)
    mine = [write for write in history.writes if write.gang == (pods.namespace, "slow")]
    first = next(at for at, write in enumerate(mine) if write.holds)
    assert len({write.uid for write in mine[:first]}) == 64
    assert (history.held_twice(), history.misplaced()) == ([], [])
