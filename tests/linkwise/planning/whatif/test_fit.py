import msgspec
import pytest
from msgspec.structs import replace
from support.builders import a_counted_node, a_node, a_pcie_machine, a_pod, a_seen, a_snapshot

from linkwise.cluster import keys
from linkwise.cluster.allocations.gpus import GPUShare
from linkwise.cluster.nodes.gpu_parts import GPUParts, PartKind
from linkwise.cluster.nodes.node import MachineSource
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.whatif_api import FitRequest, FitTemplate, NodeLeft, PodFit
from linkwise.planning.cycle.cycle import Reservation
from linkwise.planning.placement.filtering.reasons import Reason
from linkwise.planning.state.cluster_state import ClusterState
from linkwise.planning.whatif.fit import BY_COUNT, BY_SCHEDULER, settled_in, would_fit

GATE = {"schedulingGates": [{"name": keys.GANG}]}


def asked(limits, *names, labels=None, annotations=None, **spec):
    spec = {**GATE, **spec}
    raw = a_pod(limits, name="template", labels=labels, annotations=annotations, **spec)
    return FitTemplate(msgspec.convert(raw, Pod), list(names))


def counted(gpus):
    return asked({keys.NVIDIA_GPU: gpus}, "a", schedulingGates=[])


def gang(count, gpus=1, size=None):
    mark = {keys.GANG: "bert", keys.GANG_SIZE: str(size or count)}
    names = (f"bert-{i}" for i in range(count))
    return asked({keys.GPU_WHOLE: gpus}, *names, annotations=mark)


PARTS = a_counted_node("t4", parts=GPUParts(PartKind.REPLICA, 2, 4))


def by_count(needed, *names):
    mark = {keys.GANG: "tune", keys.GANG_SIZE: str(needed)}
    return asked({keys.NVIDIA_GPU: 1}, *names, annotations=mark)


def members_on(*nodes):
    mark = {keys.GANG: "bert", keys.GANG_SIZE: "4"}
    return [
        a_seen(1, f"there-{i}", namespace="default", annotations=mark, nodeName=node, gates=())
        for i, node in enumerate(nodes)
    ]


KEPT = "reserved for the unit that waited longest (1)"


def fits(snapshot, *templates, settled=None, reserved=None):
    return would_fit(snapshot, FitRequest(list(templates)), settled or (), reserved)


def test_a_gang_of_one_pod_is_placed_on_parts_of_gpus_as_a_pod_on_its_own_is():
    (fit,) = fits(a_snapshot(PARTS), by_count(1, "tune-0"))

    assert (fit.fits, fit.never, fit.pods[0].node) == (True, False, "t4")


def test_a_gang_of_several_pods_is_not_placed_on_parts_of_one_gpu():
    (fit,) = fits(a_snapshot(PARTS), by_count(2, "tune-0", "tune-1"))

    assert (fit.fits, fit.never) == (False, True)


def by_owner(count, starts_with, gpus=4):
    mark = {keys.GANG: "el", keys.GANG_KIND: "PyTorchJob"}
    names = (f"el-{i}" for i in range(count))
    template = asked({keys.GPU_WHOLE: gpus}, *names, annotations=mark)
    return replace(template, owner="uid", members=count, starts_with=starts_with)


@pytest.mark.parametrize(
    ("starts_with", "placed"),
    [
        pytest.param(1, 2, id="fewer than fit"),
        pytest.param(2, 2, id="as many as fit"),
        pytest.param(3, 0, id="more than fit"),
        pytest.param(None, 0, id="all"),
    ],
)
def test_a_gang_that_may_start_with_a_part_has_as_many_pods_as_fit(starts_with, placed):
    (fit,) = fits(a_snapshot(a_node("gpu-0")), by_owner(4, starts_with))

    assert [pod.node for pod in fit.pods] == ["gpu-0"] * placed + [None] * (4 - placed)
    assert (fit.fits, fit.never) == (False, not placed)
    assert fit.reason.startswith("2 of its 4 pods start now; the next one waits: ") == bool(placed)


def test_the_rest_of_an_elastic_gang_leaves_room_for_others():
    nodes = a_snapshot(a_node("gpu-0"), a_node("gpu-1"), taken={"gpu-1": range(4)})

    first, second = fits(nodes, by_owner(4, 1, gpus=8), asked({keys.GPU_WHOLE: 4}, "a"))

    assert [pod.node for pod in first.pods] == ["gpu-0", None, None, None]
    assert second.fits


def test_pods_of_one_template_are_in_the_groups_that_their_labels_name():
    mark = {keys.GANG: "vllm", keys.GANG_KIND: "LeaderWorkerSet"}
    labels = {keys.LWS_NAME: "vllm", keys.LWS_GROUP_INDEX: "0"}
    names = "vllm-0", "vllm-0-1", "vllm-1", "vllm-1-1"
    template = asked({keys.GPU_WHOLE: 4}, *names, annotations=mark, labels=labels)
    second = {keys.LWS_GROUP_INDEX: "1"}
    groups = replace(template, owner="uid", members=2, labels=[{}, {}, second, second])

    (fit,) = fits(a_snapshot(a_node("gpu-0")), groups)

    assert [pod.node for pod in fit.pods] == ["gpu-0", "gpu-0", None, None]
    assert (fit.fits, fit.never) == (False, False)


def test_gang_that_fits_has_nodes_bandwidth_and_free_gpus():
    snapshot = a_snapshot(a_node("gpu-0"), taken={"gpu-0": [0, 3]})

    (fit,) = fits(snapshot, gang(4))

    assert (fit.fits, fit.gang, fit.reason) == (True, "bert", None)
    assert fit.pods == [PodFit(f"bert-{i}", "gpu-0", [4 + i]) for i in range(4)]
    assert (fit.bandwidth, fit.best_possible) == (55.2, 55.2)
    assert (fit.bandwidth_note, fit.bandwidth_nodes, fit.best_possible_nodes) == (None, 1, 1)
    assert fit.nodes == [NodeLeft("gpu-0", "topology", 8, 6, 2)]
    assert (fit.why, fit.notes) == ("only gpu-0 takes all 4 now", [])


def test_gang_over_nodes_reports_which_links_its_bandwidth_counts():
    taken = {"gpu-0": range(4), "gpu-1": range(4)}

    (fit,) = fits(a_snapshot(a_node("gpu-0"), a_node("gpu-1"), taken=taken), gang(8))

    assert (fit.bandwidth, fit.bandwidth_note, fit.bandwidth_nodes) == (13.7, "nic unknown", 2)
    assert "the slowest link is PCIe out of gpu-0, which has 4 of the job's GPUs" in fit.notes
    assert fit.best_possible_nodes == 1


@pytest.mark.parametrize(
    ("gpus", "bandwidth", "note"),
    [
        pytest.param(8, 68.6, None, id="whole nodes"),
        pytest.param(5, None, "GPUs unknown", id="parts of nodes"),
        pytest.param(1, None, None, id="one GPU each"),
    ],
)
def test_minimum_over_pods_is_not_known_if_nvidias_plugin_chooses_the_gpus_of_one(
    gpus, bandwidth, note
):
    nodes = (a_counted_node(name, resources={keys.NVIDIA_GPU: 8}) for name in ("a", "b"))

    (fit,) = fits(a_snapshot(*nodes), asked({keys.NVIDIA_GPU: gpus}, "p", "q"))

    assert fit.fits
    assert (fit.bandwidth, fit.bandwidth_note) == (bandwidth, note)


def test_a_gang_that_does_not_fit_holds_nothing_and_nodes_are_counted_by_the_reason():
    snapshot = a_snapshot(a_node("gpu-0"), a_node("gpu-1", ready=False), taken={"gpu-0": range(6)})

    (fit,) = fits(snapshot, gang(4))

    assert (fit.fits, fit.nodes, fit.why, fit.bandwidth) == (False, [], None, None)
    assert fit.pods == [PodFit(f"bert-{i}", None, None) for i in range(4)]
    assert fit.reason.startswith("needs 4 GPUs as 4 × 1 GPU; 2 of 4 workers fit now")
    assert f"{Reason.NOT_READY} (1)" in fit.reason
    assert fit.best_possible == 55.2


def test_share_has_its_card_and_the_free_amounts():
    node = a_node("share-0", mode="core_mem", card_memory=15)
    snapshot = a_snapshot(node, shares={"share-0": [GPUShare(0, mem=3, core=10)]})

    (fit,) = fits(snapshot, asked({keys.GPU_MEM: 10, keys.GPU_CORE: 30}, "a"))

    assert fit.pods == [PodFit("a", "share-0", [0])]
    (left,) = fit.nodes
    assert left.memory_free_before == [12, *[15] * 7]
    assert left.memory_free_after == [2, *[15] * 7]
    assert (left.core_free_before[0], left.core_free_after[0]) == (90, 60)
    assert left.replicas_free_before is None


def test_replicas_are_reported_by_gpu():
    snapshot = a_snapshot(a_node("slice-0", mode="timeslice"))

    (fit,) = fits(snapshot, asked({keys.NVIDIA_GPU_SHARED: 2}, "a"))

    assert fit.pods == [PodFit("a", "slice-0", [0, 1])]
    assert fit.nodes[0].replicas_free_after == [3, 3, *[4] * 6]
    assert fit.nodes[0].memory_free_after is None


def test_single_pods_have_placements_and_the_first_refusal():
    snapshot = a_snapshot(a_node("gpu-0"))

    (fit,) = fits(snapshot, asked({keys.GPU_WHOLE: 4}, "a", "b", "c"))

    assert (fit.fits, fit.gang) == (False, None)
    assert [pod.node for pod in fit.pods] == ["gpu-0", "gpu-0", None]
    assert "too few free GPUs (1)" in fit.reason
    assert fit.nodes == [NodeLeft("gpu-0", "topology", 8, 8, 0)]


def test_bandwidth_of_single_pods_is_that_of_the_slowest():
    snapshot = a_snapshot(a_node("gpu-0"), taken={"gpu-0": [1, 2, 4, 6]})

    (fit,) = fits(snapshot, asked({keys.GPU_WHOLE: 2}, "a", "b"))

    assert [pod.gpus for pod in fit.pods] == [[0, 3], [5, 7]]
    assert (fit.bandwidth, fit.best_possible) == (20.0, 40.0)


def test_templates_take_from_each_other_and_what_is_left_is_left_by_all_of_them():
    snapshot = a_snapshot(a_node("gpu-0"))

    first, second, third = fits(
        snapshot,
        asked({keys.GPU_WHOLE: 4}, "a"),
        asked({keys.GPU_WHOLE: 4}, "b"),
        asked({keys.GPU_WHOLE: 1}, "c"),
    )

    assert [one.fits for one in (first, second, third)] == [True, True, False]
    assert first.nodes == second.nodes == [NodeLeft("gpu-0", "topology", 8, 8, 0)]


def test_a_gang_of_two_templates_is_placed_as_one():
    snapshot = a_snapshot(a_node("gpu-0"))
    mark = {keys.GANG: "bert", keys.GANG_SIZE: "3"}
    master = asked({keys.GPU_WHOLE: 2}, "bert-master-0", annotations=mark)
    workers = asked({keys.GPU_WHOLE: 1}, "bert-worker-0", "bert-worker-1", annotations=mark)

    (alone,) = fits(snapshot, workers)
    both = fits(snapshot, master, workers)

    assert alone.reason == "2 of 3 members"
    assert [one.gang for one in both] == ["bert", "bert"]
    taken = [gpu for one in both for pod in one.pods for gpu in pod.gpus]
    assert [len(pod.gpus) for one in both for pod in one.pods] == [2, 1, 1]
    assert len(set(taken)) == 4


def test_members_that_are_there_already_count():
    snapshot = a_snapshot(a_node("gpu-0"))

    (fit,) = fits(snapshot, gang(2, size=4), settled=members_on("gpu-0", "gone"))

    assert fit.fits


@pytest.mark.parametrize(
    ("taken", "node"), [(range(3), "gpu-1"), (range(8), "gpu-0")], ids=["room", "full"]
)
def test_a_replacement_is_placed_next_to_its_gang_if_it_fits(taken, node):
    snapshot = a_snapshot(
        a_node("gpu-0"), a_node("gpu-1"), taken={"gpu-0": range(7), "gpu-1": taken}
    )
    there = members_on("gpu-1", "gpu-1", "gpu-1")

    (fit,) = fits(snapshot, gang(1, size=4), settled=there)

    assert [pod.node for pod in fit.pods] == [node]


def test_members_that_wait_or_belong_to_another_job_of_the_name_do_not_count():
    state = ClusterState()
    mark = {keys.GANG: "bert", keys.GANG_SIZE: "4"}
    other = {"kind": "Job", "name": "bert", "uid": "j"}
    for name, pod in {
        "runs": {"nodeName": "gpu-0", "gates": ()},
        "waits": {},
        "has ended": {"phase": "Succeeded"},
        "other": {"nodeName": "gpu-0", "gates": (), "owner": other},
    }.items():
        # A gang of its own.
        marks = {**mark, keys.GANG_SIZE: "1"} if name == "other" else mark
        one = a_seen(1, name, namespace="default", annotations=marks, **pod)
        state.update_pod(one.key, one)

    request = FitRequest([gang(2, size=4)])

    settled = settled_in(state, request)
    (fit,) = would_fit(a_snapshot(a_node("gpu-0")), request, settled)

    assert {pod.name for pod in settled} == {"runs", "has ended", "other"}
    assert fit.fits
    (fit,) = would_fit(a_snapshot(a_node("gpu-0")), FitRequest([gang(1, size=4)]), settled)
    assert fit.reason == "3 of 4 members"


@pytest.mark.parametrize(
    ("template", "notes"),
    [
        pytest.param(asked({keys.GPU_WHOLE: 1}, "a"), [], id="gate"),
        pytest.param(
            asked({keys.GPU_WHOLE: 1}, "a", schedulingGates=[]), [BY_SCHEDULER], id="scheduler"
        ),
        pytest.param(
            asked({keys.GPU_WHOLE: 1}, "a", schedulingGates=[{"name": "theirs"}]),
            [BY_SCHEDULER],
            id="a gate of others",
        ),
        pytest.param(counted(1), [BY_COUNT], id="counted"),
    ],
)
def test_note_names_the_system_that_chooses_the_gpus(template, notes):
    snapshot = a_snapshot(a_node("gpu-0"), a_node("plain-0", mode="default"))

    (fit,) = fits(snapshot, template)

    assert (fit.fits, fit.notes) == (True, notes)


def test_gpus_that_nvidias_plugin_chooses_are_unknown():
    (fit,) = fits(a_snapshot(a_node("plain-0", mode="default")), counted(3))

    assert fit.pods == [PodFit("a", "plain-0", None, count=3)]
    assert (fit.nodes[0].free_before, fit.nodes[0].free_after) == (8, 5)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        pytest.param(gang(2), False, id="gang"),
        pytest.param(asked({keys.GPU_WHOLE: 1}, "a"), False, id="pod"),
        pytest.param(asked({keys.GPU_WHOLE: 1}, "a", priority=4), False, id="as urgent"),
        pytest.param(asked({keys.GPU_WHOLE: 1}, "a", priority=5), True, id="more urgent"),
        pytest.param(counted(1), True, id="by count"),
        pytest.param(
            asked({keys.GPU_WHOLE: 1}, "a", schedulingGates=[]), True, id="not behind our gate"
        ),
    ],
)
def test_on_reserved_nodes_our_planner_places_only_what_is_more_urgent(template, expected):
    snapshot = a_snapshot(a_node("gpu-0"), a_node("plain-0", mode="default"))

    (fit,) = fits(snapshot, template, reserved=Reservation(4, frozenset({"gpu-0"})))

    assert fit.fits is expected
    assert (KEPT in (fit.reason or "")) is not expected
    assert all((pod.node is not None) is expected for pod in fit.pods)


def test_while_some_nodes_are_reserved_others_are_given():
    snapshot = a_snapshot(a_node("gpu-0"), a_node("gpu-1"))

    (fit,) = fits(snapshot, gang(2), reserved=Reservation(4, frozenset({"gpu-0"})))

    assert {pod.node for pod in fit.pods} == {"gpu-1"}


def test_a_pod_with_too_many_host_ports_does_not_fit():
    ports = [{"hostPort": port} for port in range(1, 258)]
    container = {"name": "c", "resources": {"limits": {keys.GPU_WHOLE: 1}}, "ports": ports}

    (fit,) = fits(a_snapshot(a_node()), asked({}, "many", containers=[container]))

    assert fit.reason.startswith("it is too large to plan: it asks for more than 256 host ports")


def test_incomplete_gang_is_refused_as_incomplete_before_reserved_nodes_count():
    reserved = Reservation(0, frozenset({"gpu-0"}))

    (fit,) = fits(a_snapshot(a_node("gpu-0")), gang(2, size=3), reserved=reserved)

    assert fit.reason == "2 of 3 members"


def test_each_note_of_single_pods_appears_once():
    claim = {"name": "v", "persistentVolumeClaim": {"claimName": "a"}}
    unknown = a_node("unknown", machine_source=MachineSource.UNKNOWN)
    snapshot = a_snapshot(a_node("gpu-0"), unknown, taken={"gpu-0": range(7)})

    (fit,) = fits(snapshot, asked({keys.GPU_WHOLE: 1}, "a", "b", "c", volumes=[claim]))

    assert [pod.node for pod in fit.pods] == ["gpu-0", "unknown", "unknown"]
    assert (fit.why, fit.notes) == (
        None,
        [
            "left to kube-scheduler: volumes",
            "the GPU links of unknown are unknown: all GPUs count as equal",
        ],
    )


@pytest.mark.parametrize("marked", [False, True], ids=["alone", "a gang"])
def test_pods_of_one_name_of_two_workloads_are_two_pods(marked):
    mark = {keys.GANG: "bert", keys.GANG_SIZE: "2"} if marked else None
    one = asked({keys.GPU_WHOLE: 1}, "serve-0", annotations=mark)
    other = asked({keys.GPU_WHOLE: 2}, "serve-0", annotations=mark)

    found = fits(a_snapshot(a_node("gpu-0", card_memory=16)), one, other)

    assert [fit.fits for fit in found] == [True, True]
    assert len({gpu for fit in found for pod in fit.pods for gpu in pod.gpus}) == 3


def test_shares_of_a_gang_with_pods_of_one_name_are_two_shares():
    mark = {keys.GANG: "bert", keys.GANG_SIZE: "2"}
    share = asked({keys.GPU_MEM: 10}, "serve-0", annotations=mark)
    snapshot = a_snapshot(a_node("share-0", mode="core_mem", card_memory=15))

    first, second = fits(snapshot, share, share)

    assert (first.pods[0].gpus, second.pods[0].gpus) == ([0], [1])


def test_a_pod_that_insists_on_nvlink_is_refused_without_it():
    pcie = a_snapshot(a_node("gpu-0", a_pcie_machine(2, socket=2)))
    pod = asked({keys.GPU_WHOLE: 2}, "a", annotations={keys.LINK: "nvlink"})

    (free,), (linked,) = fits(pcie, asked({keys.GPU_WHOLE: 2}, "a")), fits(pcie, pod)

    assert (free.fits, linked.fits) == (True, False)
