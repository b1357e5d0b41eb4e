"""Single pods and shares, by a stock scheduler that asks the scorer about GPUs."""

import pytest
from controlplane.cards import wait_for_reason, where
from controlplane.gangs import wait_for_event
from controlplane.nodes import NODES
from controlplane.pods import Pods, container
from controlplane.process import wait_until

from linkwise.cluster import container_variables, keys

SHARED = {"name": "share", "machine": "t4x4", "mode": "core_mem", "gpuMemory": 15}
MEMORY = {**SHARED, "mode": "share"}
MACHINE = {"name": "dgx", "machine": "dgx1-v100", "mode": "topology"}


def share(memory, core=None):
    return {keys.GPU_MEM: memory, **({keys.GPU_CORE: core} if core else {})}


def placed(pods, *asked):
    """Create pods one after the other; return the node and cards of each."""
    found = []
    for limits in asked:
        name = f"pod-{len(pods.all())}"
        pods.create(limits, name=name)
        found.append(where(pods, name))
    return found


# ---- Which card.


def test_four_pods_of_10_gib_and_30_percent_take_a_card_each_and_a_fifth_waits_with_the_reason(
    pods, nodes
):
    nodes(SHARED)

    assert placed(pods, *[share(10, 30)] * 4) == [("share", (card,)) for card in range(4)]
    pods.create(share(10, 30), name="fifth")
    wait_for_reason(pods, "fifth", "no card with enough free memory and compute")
    pods.api.delete(f"{pods.path}/pod-2", gracePeriodSeconds="0")
    assert where(pods, "fifth") == ("share", (2,))


@pytest.mark.parametrize(
    ("placement", "expected"),
    [
        # Best fit: the card with the least that is left and enough. Spread: the emptiest.
        pytest.param("binpack", [0, 0, 1, 0, 1], id="binpack"),
        pytest.param("spread", [0, 1, 2, 3, 3], id="spread"),
    ],
)
def test_shares_go_to_the_card_that_the_nodes_rule_says(pods, nodes, placement, expected):
    nodes({**SHARED, "labels": {keys.NODE_PLACEMENT: placement}})

    found = placed(pods, share(6, 30), share(6, 30), share(6, 30), share(3, 30), share(6, 30))

    assert found == [("share", (card,)) for card in expected]


def test_a_pod_that_sets_its_visible_devices_gets_one_card_and_sees_no_other(pods, nodes):
    nodes(MEMORY)
    seen = {"name": container_variables.ENV_VISIBLE_DEVICES, "value": "all"}
    spec = {"containers": [{**container(share(5)), "env": [seen]}]}
    pods.create(name="gpushare-test-pod", spec=spec)

    assert where(pods, "gpushare-test-pod") == ("share", (0,))
    pod = pods.all()["gpushare-test-pod"]
    (env,) = [one for one in pod["spec"]["containers"][0]["env"] if one["name"] == seen["name"]]
    path = env["valueFrom"]["fieldRef"]["fieldPath"]
    (key,) = [key for key in pod["metadata"]["annotations"] if f"['{key}']" in path]
    assert pod["metadata"]["annotations"][key] == "0"
    # As gpushare's own device plugin and kubectl-inspect-gpushare read it.
    assert pod["metadata"]["annotations"][keys.MEM_IDX] == "0"


def test_memory_only_and_compute_pods_do_not_share_a_node(pods, nodes):
    nodes(SHARED)
    placed(pods, share(2, 30))
    pods.create(share(2), name="memory")

    wait_for_reason(pods, "memory", "in use by pods that share compute, too")


def test_whole_gpus_are_the_set_with_the_most_bandwidth(pods, nodes):
    nodes(MACHINE)

    [(node, both)] = placed(pods, {keys.GPU_WHOLE: 2})
    # Two links between them, where others have one or none.
    assert (node, both) in [
        ("dgx", pair)
        for pair in ((0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (2, 6), (3, 7), (4, 7), (5, 6))
    ]


# ---- Who was there before.


@pytest.fixture
def migrating(policy_with, sidecar):
    """Lets the policy say that gpushare's annotations count."""
    del sidecar
    with policy_with("migration: {gpushare: true}"):
        yield


@pytest.mark.usefixtures("migrating")
def test_pods_that_gpushare_placed_before_keep_their_cards(pods, nodes, sidecar):
    nodes(MEMORY)
    theirs = {
        keys.MEM_IDX: "2",
        keys.MEM_POD: "10",
        keys.MEM_DEV: "15",
        keys.MEM_ASSIGNED: "true",
        keys.MEM_ASSUME_TIME: "1700000000000000000",
    }
    # As before Linkwise came: where its webhook does not look.
    others = Pods(pods.api, "kube-system")
    others.create(share(10), name="before", annotations=theirs, spec={"nodeName": "share"})

    def holders():
        return [gpu["i"] for gpu in sidecar.node("share")["gpus"] if gpu["holders"]]

    wait_until(lambda: holders() == [2], "the scorer knows")
    assert placed(pods, share(10), share(10), share(10)) == [("share", (i,)) for i in (0, 1, 3)]
    pods.create(share(10), name="fifth")
    wait_for_reason(pods, "fifth", "no card with enough")
    others.api.delete(f"{others.path}/before", gracePeriodSeconds="0")


# ---- A scheduler that chooses no GPUs.


@pytest.mark.parametrize("asked", [share(5), {keys.GPU_WHOLE: 1}])
def test_a_pod_that_names_another_scheduler_is_refused_with_a_suggestion(pods, asked):
    message = pods.refusal(asked, spec={"schedulerName": "another"})

    assert "leave schedulerName out, or write linkwise [LW116]" in message


# ---- A job whose percentage cannot be.


def test_a_job_whose_percentage_is_no_multiple_of_5_gets_the_reason(pods, nodes):
    nodes(SHARED)
    template = {"spec": {"restartPolicy": "Never", "containers": [container(share(2, 32))]}}
    jobs = f"/apis/batch/v1/namespaces/{pods.namespace}/jobs"
    pods.api.create(jobs, {"metadata": {"name": "cuda-sample"}, "spec": {"template": template}})

    wait_for_event(pods, "FailedCreate", "LW101")


# ---- Preemption.


def test_pods_of_one_card_make_room(pods, nodes, urgent):
    nodes(MEMORY)
    assert placed(pods, *[share(5)] * 12) == [("share", (i // 3,)) for i in range(12)]

    pods.create(share(10), name="high", spec=urgent)

    _, (card,) = where(pods, "high")
    wait_until(lambda: len(pods.all()) == 11, "two pods were evicted")
    gone = {f"pod-{i}" for i in range(12)} - pods.all().keys()
    assert {int(name.removeprefix("pod-")) // 3 for name in gone} == {card}


# ---- Nodes that change.


def test_a_node_whose_mode_changes_takes_no_more_of_the_old_and_those_that_run_still_count(
    pods, nodes, sidecar
):
    nodes(MEMORY)
    assert placed(pods, share(10)) == [("share", (0,))]
    mode = {"metadata": {"labels": {keys.NODE_MODE: "core_mem"}}}
    pods.api.patch(f"{NODES}/share", mode)
    more = {keys.GPU_CORE: "400"}
    pods.api.patch(f"{NODES}/share/status", {"status": {"allocatable": more, "capacity": more}})
    wait_until(lambda: sidecar.node("share")["mode"] == "core_mem", "the scorer knows")

    pods.create(share(5, 30), name="new")
    wait_for_reason(pods, "new", "in use by pods that share memory only")
    pods.api.delete(f"{pods.path}/pod-0", gracePeriodSeconds="0")

    assert where(pods, "new") == ("share", (0,))


def test_a_cordoned_card_is_not_allocated(pods, nodes, sidecar):
    nodes(SHARED)
    pods.api.patch(f"{NODES}/share", {"metadata": {"annotations": {keys.CORDON: "0,2"}}})

    def cordoned():
        return [gpu["i"] for gpu in sidecar.node("share")["gpus"] if gpu["cordoned"]]

    wait_until(lambda: cordoned() == [0, 2], "the scorer knows")

    assert placed(pods, *[share(10, 30)] * 2) == [("share", (1,)), ("share", (3,))]
    pods.create(share(10, 30), name="third")
    wait_for_reason(pods, "third", "not enough without the GPUs that are cordoned or unhealthy")
