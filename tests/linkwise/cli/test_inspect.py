import json

import pytest
from support.builders import a_pod, dgx1_v100, node_object, placed_pod, topology_map
from support.fleet_map import text_of_map

from linkwise.cluster import keys
from linkwise.cluster.allocations.gpus import GPUShare
from linkwise.cluster.allocations.record import Isolation
from linkwise.cluster.nodes.kubelet_policy import CPUManager, KubeletPolicy, TopologyManager
from linkwise.cluster.nodes.topology_configmap import PublishedTopology
from linkwise.policy.active_config import POLICY, PROFILES
from linkwise.views.live.snapshot import snapshot_text

GANG = {keys.POD_GROUP_NAME: "vgg16", keys.POD_GROUP_MIN_AVAILABLE: "4"}
MEMORY = {keys.GPU_MEM: 3}
BOTH = {keys.GPU_MEM: 3, keys.GPU_CORE: 30}


def a_cluster():
    """Return a node with a gang on half of it, and one whose first card two pods share."""
    topology, sharing = ({keys.NODE_MODE: mode} for mode in ("topology", "core_mem"))
    workers = [
        placed_pod(f"w-{i}", {keys.GPU_WHOLE: 1}, "dgx-0", GPUShare(i), labels=GANG, bound=i > 0)
        for i in range(4)
    ]
    dgx = node_object("dgx-0", topology, **{keys.GPU_WHOLE: "8"})
    dgx["metadata"]["annotations"] = {keys.CORDON: "6"}
    amounts = {keys.GPU_MEM: "30", keys.GPU_COUNT: "2", keys.GPU_CORE: "200"}
    return [
        dgx,
        topology_map("dgx-0", PublishedTopology(dgx1_v100(), (True,) * 7 + (False,))),
        *workers,
        node_object("share-0", sharing, "192.168.0.71", **amounts),
        placed_pod("a", BOTH, "share-0", GPUShare(0, mem=3, core=30)),
        placed_pod("b", BOTH, "share-0", GPUShare(0, mem=3, core=30)),
        node_object("cpu-0", {}, cpu="4"),
    ]


@pytest.fixture
def inspect(linkwise, write):
    """Inspects a cluster of these objects."""

    def call(objects, *arguments):
        write("cluster.json", snapshot_text(objects))
        return linkwise("inspect", "--cluster", "cluster.json", *arguments)

    return call


def test_node_without_gpus_is_shown_while_pods_hold_some(inspect):
    gone = node_object("share-0", {keys.NODE_MODE: "core_mem"}, cpu="4")
    held = placed_pod("a", BOTH, "share-0", GPUShare(0, mem=3, core=30))

    for arguments in ((), ("-d",), ("--format", "gpushare"), ("-o", "json")):
        ran = inspect([gone, held], *arguments)
        assert ran.code == 0
        assert "share-0" in ran.out
    assert "default/a: " in inspect([gone, held]).out


def test_table_shows_holders_links_and_enforcement(inspect):
    assert inspect(a_cluster()).out == (
        "dgx-0 topology, NVLink mesh; 2 of 8 GPUs free\n"
        "  0 1 2 3  whole      55.2 GB/s  gang default/vgg16 (4 pods, 1 not bound yet)\n"
        "  4 5      free       20.0 GB/s\n"
        "  6        cordoned\n"
        "  7        unhealthy\n"
        "\n"
        "share-0 core_mem, links unknown; 24 of 30 GiB free, 140 of 200 % compute; "
        "nothing enforces the limits\n"
        "  0  6 of 15 GiB, 60 of 100 %    default/a (3 GiB, 30 %), default/b (3 GiB, 30 %)\n"
        "  1  free\n"
        "\n"
        "2 nodes with 10 GPUs, 3 free\n"
    )


def test_source_of_the_links_is_shown(inspect):
    labels = {keys.GFD_PRODUCT: "NVIDIA-H200", keys.GFD_COUNT: "8"}
    node = node_object("h200", {keys.NODE_MODE: "topology", **labels}, **{keys.GPU_WHOLE: "8"})
    objects = [*a_cluster(), node]

    nodes = {one["name"]: one for one in json.loads(inspect(objects, "-o", "json").out)["nodes"]}

    assert [(name, one["machine_source"], one["unhealthy"]) for name, one in nodes.items()] == [
        ("dgx-0", "agent", [7]),
        ("h200", "gpu-feature-discovery", []),
        ("share-0", "unknown", []),
    ]
    links = "NVSwitch identified by labels of GPU feature discovery"
    assert f"h200 topology, NVIDIA H200, {links}; 8 of 8 GPUs" in inspect(objects).out


def test_isolation_that_an_agent_reports_is_in_the_document(inspect):
    dgx, topology, *_ = a_cluster()
    topology["data"][keys.TOPOLOGY_ISOLATION] = "mps"

    (node,) = json.loads(inspect([dgx, topology], "-o", "json").out)["nodes"]

    assert (node["isolation"], node["enforced"]) == ("mps", [])


def test_mismatch_that_an_agent_reports_is_shown(inspect):
    dgx, topology, *_ = a_cluster()
    topology["data"][keys.TOPOLOGY_MISMATCH] = "process 7 uses GPU 3, which no pod has"

    shown = inspect([dgx, topology])

    assert shown.out.startswith("dgx-0 topology, NVLink mesh; 8 GPUs, none is offered\n")
    assert "  unaccounted its agent reports: process 7 uses GPU 3, which no pod has\n" in shown.out


def test_kubelet_that_may_refuse_a_pod_is_noted(inspect):
    policy = KubeletPolicy(CPUManager.STATIC, TopologyManager.RESTRICTED)
    published = PublishedTopology(dgx1_v100(), (True,) * 8, kubelet=policy)
    dgx, _, *others = a_cluster()
    objects = [dgx, topology_map("dgx-0", published), *others]

    shown = inspect(objects).out
    note = "The kubelet refuses a pod (TopologyAffinityError) whose exclusive CPUs"
    assert shown.splitlines()[1].startswith(f"  note: {note}")
    assert shown.count("note:") == 1
    nodes = json.loads(inspect(objects, "-o", "json").out)["nodes"]
    by_name = {node["name"]: node["kubelet"] for node in nodes}
    assert by_name == {
        "dgx-0": {
            "cpu_manager": "static",
            "topology_manager": "restricted",
            "note": policy.numa_note,
        },
        "share-0": {"cpu_manager": None, "topology_manager": None, "note": None},
    }
    page = text_of_map(inspect(objects, "-o", "html").out)
    assert page.count("The kubelet refuses a pod (TopologyAffinityError)") == 1


def test_details_are_every_gpu_and_every_pod_on_it(inspect):
    lines = inspect(a_cluster(), "-d").out.splitlines()

    assert lines[1].split() == ["GPU", "STATE", "NVLINKS", "UUID", "POD", "GANG", "ISOLATION"]
    assert lines[2].split() == [
        "0", "whole", "1×1", "2×1", "3×2", "4×2", "-", "default/w-0", "(not", "bound", "yet)",
        "default/vgg16", "none",
    ]  # fmt: skip
    assert [line.split()[0] for line in lines[2:10]] == [str(i) for i in range(8)]
    assert lines[14].split()[:3] == ["default/b", "(3", "GiB,"]


def test_one_node_is_shown_alone(inspect):
    shown = inspect(a_cluster(), "share-0").out

    assert "share-0" in shown
    assert "dgx-0" not in shown


def test_a_namespace_is_shown_the_nodes_where_it_has_gpus(inspect):
    objects = a_cluster()
    theirs = placed_pod("c", BOTH, "share-0", GPUShare(1, mem=3, core=30))
    theirs["metadata"]["namespace"] = "team"

    shown = inspect([*objects, theirs], "-n", "team").out

    assert shown.startswith("share-0 ")
    assert "dgx-0" not in shown
    assert inspect(objects, "-n", "team").out == "no node with GPUs\n"


@pytest.mark.parametrize(
    ("name", "message"),
    [("none", "there is no node none"), ("cpu-0", "node cpu-0 has no GPUs")],
)
def test_a_node_that_has_nothing_to_show_is_an_error(inspect, name, message):
    ran = inspect(a_cluster(), name)

    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"linkwise: {message}.")


def test_gpushare_table_has_its_known_format(inspect):
    amounts = {keys.GPU_MEM: "30", keys.GPU_COUNT: "2"}
    ran = inspect(
        [
            node_object("node1", {keys.NODE_GPUSHARE: "true"}, "192.168.0.71", **amounts),
            placed_pod("a", {keys.GPU_MEM: 6}, "node1", GPUShare(0, mem=6)),
            a_pod(MEMORY, name="b", nodeName="node1"),
        ],
        "--format",
        "gpushare",
    )

    assert ran.out == (
        "NAME   IPADDRESS     GPU0(Allocated/Total)  GPU1(Allocated/Total)  PENDING(Allocated)"
        "  GPU Memory(GiB)\n"
        "node1  192.168.0.71  6/15                   0/15                   3                 "
        "  9/30\n"
        # As the original: 20 more than the first node's words.
        f"{'-' * 56}\n"
        "Allocated/Total GPU Memory In Cluster:\n"
        "9/30 (30%)\n"
    )


def test_gpushares_table_fills_up_nodes_with_fewer_cards_and_leaves_out_other_nodes(inspect):
    lines = inspect(
        [
            *a_cluster(),
            node_object(
                "one", {keys.NODE_GPUSHARE: "true"}, **{keys.GPU_MEM: "7", keys.GPU_COUNT: "1"}
            ),
        ],
        "--format=gpushare",
    ).out.splitlines()

    assert [line.split() for line in lines[1:3]] == [
        ["one", "unknown", "0/7", "0/0", "0/7"],
        ["share-0", "192.168.0.71", "6/15", "0/15", "6/30"],
    ]
    assert lines[-1] == "6/37 (16%)"


def test_gpushares_table_counts_gib_however_large_cards_are(inspect):
    amounts = {keys.GPU_MEM: "1120", keys.GPU_COUNT: "8"}
    lines = inspect(
        [node_object("h200", {keys.NODE_GPUSHARE: "true"}, **amounts)], "--format=gpushare"
    ).out.splitlines()

    assert lines[0].endswith("GPU Memory(GiB)")
    assert lines[1].split() == ["h200", "unknown", *["0/140"] * 8, "0/1120"]


@pytest.mark.parametrize("form", [(), ("-d",), ("--format=gpushare",), ("--format=gpushare", "-d")])
def test_node_with_lost_card_is_shown_with_its_pod(inspect, form):
    amounts = {keys.GPU_MEM: "15", keys.GPU_COUNT: "1"}
    ran = inspect(
        [
            node_object("n", {keys.NODE_GPUSHARE: "true"}, **amounts),
            placed_pod("gone", MEMORY, "n", GPUShare(1, mem=3)),
        ],
        *form,
    )

    assert ran.code == 0
    # Shown as a pod whose card is unknown: in a line of its own, or in a column.
    words = ["0/15", "3", "3/15"] if form == ("--format=gpushare",) else ["gone"]
    assert all(word in ran.out for word in words)


def test_gpushares_details_are_a_pod_a_line(inspect):
    lines = inspect(a_cluster(), "--format=gpushare", "-d").out.splitlines()

    assert lines[:7] == [
        "",
        "NAME:       share-0",
        "IPADDRESS:  192.168.0.71",
        "",
        "NAME         NAMESPACE  GPU0(Allocated)  GPU1(Allocated)",
        "a            default    3                0",
        "b            default    3                0",
    ]
    assert lines[7:9] == ["Allocated :  6 (20%)", "Total :      30"]
    assert lines[-1] == "Allocated/Total GPU Memory In Cluster:  6/30 (20%)"


def test_json_has_the_fields_of_gpushare_inspect(inspect):
    document = json.loads(inspect(a_cluster(), "-o", "json").out)

    dgx, share = document["nodes"]
    assert (share["name"], share["totalGPU"], share["usedGPU"]) == ("share-0", 30, 6)
    card = share["devs"][0]
    assert (card["id"], card["totalGPU"], card["usedGPU"]) == (0, 15, 6)
    named = [(one["name"], one["namespace"], one["usedGPU"], one["core"]) for one in card["pods"]]
    assert named == [("a", "default", 3, 30), ("b", "default", 3, 30)]
    assert (share["enforced"], card["used_core"]) == (["none"], 60)
    assert (dgx["free"], dgx["free_bandwidth"], dgx["mode"]) == ([4, 5], 20.0, "topology")
    assert dgx["devs"][0]["nvlinks"] == {"1": 1, "2": 1, "3": 2, "4": 2}
    assert (dgx["devs"][6]["cordoned"], dgx["devs"][7]["healthy"]) == (True, False)
    assert dgx["devs"][0]["pods"][0]["gang"] == "default/vgg16"


def test_pod_with_unknown_gpus_marks_its_node(inspect):
    objects = [*a_cluster(), a_pod({keys.GPU_WHOLE: 1}, name="stray", nodeName="dgx-0")]

    shown = inspect(objects, "dgx-0").out
    document = json.loads(inspect(objects, "dgx-0", "-o", "json").out)["nodes"][0]

    assert "8 GPUs, none is offered" in shown
    assert "  unaccounted default/stray: it has GPUs of this node" in shown
    assert document["free"] == []
    assert [one["name"] for one in document["pending"]] == ["stray"]


@pytest.mark.parametrize(
    ("isolations", "message"),
    [
        ([Isolation.MPS, Isolation.MPS], "limits enforced by mps"),
        ([Isolation.MPS, Isolation.NONE], "limits enforced by mps of some pods only"),
    ],
    ids=["all", "some"],
)
def test_enforcement_is_read_from_records(inspect, isolations, message):
    amounts = {keys.GPU_MEM: "30", keys.GPU_COUNT: "2", keys.GPU_CORE: "200"}
    pods = [
        placed_pod(f"p-{i}", BOTH, "n", GPUShare(0, mem=3, core=30), isolation=isolation)
        for i, isolation in enumerate(isolations)
    ]

    shown = inspect([node_object("n", {keys.NODE_MODE: "mps"}, **amounts), *pods]).out

    assert shown.splitlines()[0].endswith(f"; {message}")


def test_gpus_that_are_only_counted_and_replicas_are_shown_as_such(inspect):
    sliced = {keys.NODE_MODE: "timeslice", keys.GFD_REPLICAS: "4"}
    shown = inspect(
        [
            node_object("counted", {}, **{keys.NVIDIA_GPU: "4"}),
            a_pod({keys.NVIDIA_GPU: 3}, name="n", nodeName="counted"),
            node_object("sliced", sliced, **{keys.NVIDIA_GPU_SHARED: "8"}),
            placed_pod("r", {keys.NVIDIA_GPU_SHARED: 2}, "sliced", GPUShare(0), GPUShare(0)),
        ]
    ).out

    assert shown.startswith(
        "counted default, links unknown; 1 of 4 GPUs free\n"
        "  3 GPUs  chosen by NVIDIA's plugin  bandwidth not known  default/n\n"
        "\n"
        "sliced timeslice, links unknown; 6 of 8 replicas free; nothing enforces the limits\n"
        "  0  2 of 4 replicas    default/r (2 replicas)\n"
        "  1  free\n"
    )


def counted_pod(name, gpus, node, *, bound=True, **pod):
    """Return a pod that Linkwise placed on a node of NVIDIA's plugin."""
    home = {"nodeName": node} if bound else {}
    made = a_pod({keys.NVIDIA_GPU: gpus}, name=name, **pod, **home)
    record = {"v": 1, "node": node, "gpus": None, "count": gpus}
    made["metadata"].setdefault("annotations", {})[keys.ALLOCATION] = json.dumps(record)
    return made


def h200(name):
    labels = {keys.GFD_PRODUCT: "NVIDIA-H200", keys.GFD_COUNT: "8"}
    return node_object(name, labels, **{keys.NVIDIA_GPU: "8"})


def test_bandwidth_of_counted_gpus_is_known_only_for_the_whole_node(inspect):
    workers = [
        counted_pod(f"w-{i}", 2, "whole", bound=i > 0, labels=GANG, annotations={})
        for i in range(4)
    ]
    others = [counted_pod("one", 1, "partly"), counted_pod("two", 2, "partly")]
    alone = a_pod({keys.NVIDIA_GPU: 8}, name="all", nodeName="single")
    objects = [h200("partly"), h200("single"), h200("whole"), *workers, *others, alone]
    links = "NVIDIA H200, NVSwitch identified by labels of GPU feature discovery"

    assert inspect(objects).out == (
        f"partly default, {links}; 5 of 8 GPUs free\n"
        "  1 GPU   chosen by NVIDIA's plugin                       default/one\n"
        "  2 GPUs  chosen by NVIDIA's plugin  bandwidth not known  default/two\n"
        "\n"
        f"single default, {links}; 0 of 8 GPUs free\n"
        "  8 GPUs  all GPUs  211.9 GB/s  default/all\n"
        "\n"
        f"whole default, {links}; 0 of 8 GPUs free\n"
        "  8 GPUs  all GPUs  211.9 GB/s  gang default/vgg16 (4 pods, 1 not bound yet)\n"
        "\n"
        "3 nodes with 24 GPUs, 5 free\n"
    )
    detail = inspect(objects, "whole", "-d").out.splitlines()[-6:-2]
    assert [line.split() for line in detail] == [
        ["2", "by", "count", *speed, f"default/w-{i}", "default/vgg16"]
        for i, speed in enumerate([["211.9", "GB/s"], [], [], []])
    ]
    counted = {
        each["name"]: (each["gang"], each["bandwidth"])
        for node in json.loads(inspect(objects, "-o", "json").out)["nodes"]
        for each in node["counted"]
    }
    assert counted == {
        "one": (None, None),
        "two": (None, None),
        "all": (None, 211.9),
        **{f"w-{i}": ("default/vgg16", 211.9) for i in range(4)},
    }


def test_a_cluster_without_gpus_has_nothing_to_show(inspect):
    assert inspect([node_object("cpu-0", {}, cpu="4")]).out == "no node with GPUs\n"


@pytest.mark.parametrize("home", [POLICY, PROFILES], ids=lambda home: home.name)
def test_empty_policy_and_profiles_change_nothing(inspect, home):
    metadata = {"namespace": home.namespace, "name": home.name}
    empty = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {home.key: ""}}

    assert inspect([*a_cluster(), empty]) == inspect(a_cluster())


@pytest.mark.parametrize(
    ("taken", "states", "free"),
    [(0, ["free"] * 4, [0, 1, 2, 3]), (3, ["by count"] * 4, []), (4, ["by count"] * 4, [])],
)
def test_free_and_allocated_gpus_by_count_agree(inspect, taken, states, free):
    objects = [node_object("counted", {keys.GFD_PRODUCT: "A100"}, **{keys.NVIDIA_GPU: "4"})]
    if taken:
        objects.append(a_pod({keys.NVIDIA_GPU: taken}, name="job", nodeName="counted"))

    lines = inspect(objects, "-d").out.splitlines()
    (node,) = json.loads(inspect(objects, "-o", "json").out)["nodes"]

    rows = enumerate(lines[2:6])
    assert lines[0] == f"counted default, A100, links unknown; {4 - taken} of 4 GPUs free"
    assert [line.removeprefix(f"  {i}    ").split(" ? ")[0].strip() for i, line in rows] == states
    assert (node["free"], node["gpus_free"], node["model"]) == (free, 4 - taken, "A100")
    assert sum(one["gpus"] for one in node["counted"]) == taken


def test_mismatched_mode_label_is_a_warning_with_a_fix(inspect):
    labels = {keys.NODE_MODE: "topology"}

    ran = inspect([node_object("gpu-0", labels, **{keys.NVIDIA_GPU: "8"})])

    assert ran.err == (
        "linkwise: node gpu-0: its label ack.node.gpu.schedule says topology, but it offers "
        "nvidia.com/gpu and no aliyun.com/gpu: no GPU is given out; let the device plugin offer "
        "aliyun.com/gpu, or remove the label\n"
    )


def test_a_cluster_file_without_nodes_is_refused(inspect):
    ran = inspect([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}])

    assert (ran.code, ran.out) == (2, "")
    assert "there is no node in it" in ran.err


def test_replicas_of_nvidias_plugin_are_counted_in_its_own_words(inspect):
    objects = [
        node_object("t4", {keys.GFD_PRODUCT: "Tesla-T4-SHARED"}, **{keys.NVIDIA_GPU_SHARED: "4"}),
        a_pod({keys.NVIDIA_GPU_SHARED: 1}, name="p", nodeName="t4"),
    ]

    assert inspect(objects).out == (
        "t4 default, Tesla-T4-SHARED, links unknown; 3 of 4 replicas free\n"
        "  1 replica  chosen by NVIDIA's plugin    default/p\n\n"
        "1 node with 4 replicas of NVIDIA's plugin, 3 free\n"
    )
    (node,) = json.loads(inspect(objects, "-o", "json").out)["nodes"]
    assert (node["devs"], node["counted"][0]["gpus"]) == ([], 1)


def test_slots_are_the_free_sets_by_size(inspect):
    assert inspect(a_cluster(), "--slots").out == (
        "no pool unknown model, 8 GPUs a node; 1 node, 2 GPUs free\n"
        "  SIZE                  FASTEST  GB/S  ANY  IF TOGETHER\n"
        "  8 GPUs, a whole node  0        68.6  0    0\n"
        "  4 GPUs                0        55.2  0    0\n"
        "  2 GPUs                0        40.0  1    1\n"
        "  1 GPU                 2              2    2\n"
        "  dgx-0  2 free  4 allocated, 2 unhealthy or cordoned  default/vgg16\n"
        "\n"
    )


def test_slots_of_a_cluster_without_whole_gpus_are_none(inspect):
    assert inspect([node_object("cpu-0", {}, cpu="4")], "--slots").out == (
        "no node offers whole GPUs\n"
    )


@pytest.mark.parametrize(
    "option", [("-d",), ("--format", "gpushare"), ("-o", "html")], ids=lambda option: option[-1]
)
def test_slots_have_only_one_table(inspect, option):
    ran = inspect(a_cluster(), "--slots", *option)

    assert (ran.code, ran.out) == (2, "")
    assert "--slots goes with none of -d, --format gpushare and -o html" in ran.err
