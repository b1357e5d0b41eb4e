import json
import textwrap
from datetime import UTC, datetime

import pytest
from support.builders import dgx1_v100, node_object, placed_pod, topology_map

from linkwise.cluster import keys
from linkwise.cluster.allocations.gpus import GPUShare
from linkwise.cluster.nodes.kubelet_policy import UNKNOWN_POLICY, KubeletPolicy, TopologyManager
from linkwise.cluster.nodes.topology_configmap import PublishedTopology
from linkwise.planning.gang.budgets import OF_NAMESPACE_MAX
from linkwise.runtime.process.clock import wall
from linkwise.views.live.snapshot import reduced, snapshot_text

CLUSTER = """\
apiVersion: linkwise.dev/v1alpha1
kind: Cluster
nodes:
- {name: dgx-0, machine: dgx1-v100, mode: topology, used: [{gpu: 0}, {gpu: 3}]}
- {name: dgx-1, machine: dgx1-v100, mode: topology, used: [{gpu: 2}, {gpu: 4}, {gpu: 7}]}
- {name: share-0, machine: t4x4, mode: core_mem, gpuMemory: 15, used: [{gpu: 0, mem: 3, core: 10}]}
- {name: plain-0, machine: l4x8}
"""
GANG = """\
apiVersion: kubeflow.org/v1alpha1
kind: MPIJob
metadata: {name: vgg16}
spec:
  replicas: WORKERS
  template:
    metadata:
      labels:
        pod-group.scheduling.sigs.k8s.io/name: mpijob-vgg16
        pod-group.scheduling.sigs.k8s.io/min-available: "WORKERS"
        gpu-topology: vgg16
        gpu-topology-replica: "WORKERS"
    spec:
      containers:
      - name: mpi
        resources: {limits: {aliyun.com/gpu: 1}}
"""


def gang(workers=4):
    return GANG.replace("WORKERS", str(workers))


def pod(name, limits, **spec):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "resources": {"limits": limits}}], **spec},
    }


@pytest.fixture
def simulate(linkwise, write):
    """Simulates manifests on the cluster above; returns the exit code and the answer."""

    def simulate_texts(*manifests, cluster=CLUSTER, arguments=()):
        write("cluster.yaml", cluster)
        texts = [m if isinstance(m, str) else json.dumps(m) for m in manifests]
        write("jobs.yaml", "\n---\n".join(texts))
        code, out, err = linkwise(
            "simulate", "jobs.yaml", "--cluster", "cluster.yaml", "-o", "json", *arguments
        )
        assert code in {0, 1}, err
        return code, json.loads(out)

    return simulate_texts


def test_gang_takes_the_best_set_of_one_node_and_shows_alternatives(simulate):
    code, answer = simulate(gang())

    (found,) = answer["gangs"]
    assert code == 0
    assert found["gpus"] == {"dgx-0": [4, 5, 6, 7]}
    assert (found["size"], found["placed"], found["bandwidth"]) == (4, True, 55.2)
    assert found["best_possible"] == 55.2
    assert found["index_order"] == {
        "nodes": ["dgx-0"],
        "gpus": {"dgx-0": [1, 2, 4, 5]},
        "bandwidth": 18.4,
    }
    assert found["runner_up"] == {"dgx-0": {"gpus": [1, 2, 5, 6], "bandwidth": 42.9}}
    workers = [p for p in answer["pods"] if p["gang"] == "mpijob-vgg16"]
    assert [(p["name"], p["node"], p["gpus"]) for p in workers] == [
        (f"vgg16-worker-{i}", "dgx-0", [4 + i]) for i in range(4)
    ]


def test_launcher_without_gpus_is_left_to_kube_scheduler(simulate):
    _, answer = simulate(gang())

    (launcher,) = [p for p in answer["pods"] if p["name"] == "vgg16-launcher"]
    assert (launcher["gang"], launcher["node"], launcher["gpus"]) == (None, None, None)
    assert "kube-scheduler" in launcher["reason"]


def test_a_gang_larger_than_the_cluster_waits_with_numbers_and_holds_nothing(simulate):
    code, answer = simulate(gang(40))

    (found,) = answer["gangs"]
    assert code == 1
    assert not found["placed"]
    assert "40" in found["reason"]
    assert "11" in found["reason"]
    assert all(node["free_before"] == node["free_after"] for node in answer["nodes"])
    assert all(p["reason"] for p in answer["pods"] if p["node"] is None)


def test_a_gang_with_members_missing_is_not_placed(simulate):
    three = gang().replace("replicas: 4", "replicas: 3").replace("v1alpha1", "v1alpha1")
    alone = pod("solo", {"aliyun.com/gpu": 1})
    alone["metadata"]["annotations"] = {"linkwise.dev/gang": "g", "linkwise.dev/gang-size": "2"}

    code, answer = simulate(alone)
    cut, _ = simulate(three)

    assert code == 1
    assert answer["gangs"][0]["reason"] == "1 of 2 members"
    # A minimum above what the owner makes is cut to it.
    assert cut == 0


def test_a_denied_pod_takes_nothing_and_fails_the_command(simulate):
    code, answer = simulate(
        pod("bad", {"aliyun.com/gpu-mem": 2, "aliyun.com/gpu-core.percentage": 22})
    )

    (denied,) = answer["pods"]
    assert code == 1
    assert (denied["verdict"], denied["node"]) == ("denied", None)
    assert "LW101" in denied["reason"]
    assert denied["findings"][0]["fix"]


def test_shares_go_to_the_card_in_use_that_has_room(simulate):
    share = {"aliyun.com/gpu-mem": 10, "aliyun.com/gpu-core.percentage": 30}

    code, answer = simulate(pod("a", share), pod("b", share))

    assert code == 0
    assert [(p["node"], p["gpus"]) for p in answer["pods"]] == [("share-0", [0]), ("share-0", [1])]
    (node,) = [n for n in answer["nodes"] if n["name"] == "share-0"]
    assert node["memory_free_after"] == [2, 5, 15, 15]


def test_gpus_that_nvidias_plugin_chooses_are_not_named(simulate):
    code, answer = simulate(pod("counted", {"nvidia.com/gpu": 3}))

    (found,) = answer["pods"]
    assert code == 0
    assert (found["node"], found["gpus"]) == ("plain-0", None)


def test_higher_priority_comes_first_then_the_order_of_the_files(simulate):
    whole = {"aliyun.com/gpu": 6}
    late = pod("urgent", whole, priority=10)

    code, answer = simulate(pod("first", whole), pod("second", whole), late)

    placed = {p["name"]: p["node"] for p in answer["pods"]}
    assert code == 1
    assert placed == {"urgent": "dgx-0", "first": None, "second": None}


def test_two_gangs_of_one_name_from_two_owners_stay_two(simulate):
    other = gang(2).replace("name: vgg16", "name: vgg19", 1)

    _, answer = simulate(gang(4), other)

    assert [(g["name"], g["size"]) for g in answer["gangs"]] == [
        ("mpijob-vgg16", 4),
        ("mpijob-vgg16", 2),
    ]


@pytest.mark.parametrize(
    ("link", "workers", "gpus", "placed"),
    [
        pytest.param("nvlink", 2, 3, True, id="each-worker-linked"),
        pytest.param("one-node", 2, 4, False, id="too-large-for-one-node"),
        pytest.param("best", 2, 4, True, id="over-two-nodes"),
    ],
)
def test_gang_may_require_links(simulate, link, workers, gpus, placed):
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train"},
        "spec": {
            "parallelism": workers,
            "template": {
                "metadata": {
                    "annotations": {
                        "linkwise.dev/gang": "train",
                        "linkwise.dev/gang-size": str(workers),
                        "linkwise.dev/link": link,
                    }
                },
                "spec": pod("x", {"aliyun.com/gpu": gpus})["spec"],
            },
        },
    }

    _, answer = simulate(job)

    assert answer["gangs"][0]["placed"] is placed
    assert bool(answer["gangs"][0]["reason"]) is not placed


def test_an_unknown_machine_has_no_bandwidth_and_says_why(simulate):
    cluster = """\
    apiVersion: v1
    kind: Node
    metadata: {name: bare, labels: {ack.node.gpu.schedule: topology}}
    status:
      capacity: {cpu: "64", memory: 256Gi, pods: "110", aliyun.com/gpu: "8"}
      allocatable: {cpu: "64", memory: 256Gi, pods: "110", aliyun.com/gpu: "8"}
    """

    code, answer = simulate(gang(4), cluster=textwrap.dedent(cluster))

    (found,) = answer["gangs"]
    assert code == 0
    assert found["bandwidth"] is None
    assert any("count as equal" in note for note in found["notes"])


def test_the_page_is_written_whole(linkwise, write, tmp_path):
    write("cluster.yaml", CLUSTER)
    write("job.yaml", gang())

    code, out, err = linkwise(
        "simulate", "job.yaml", "--cluster", "cluster.yaml", "-o", "html", "--to", "page.html"
    )

    assert (code, out, err) == (0, "", "")
    page = next(tmp_path.rglob("page.html")).read_text()
    assert page.startswith("<!doctype html>")
    assert "mpijob-vgg16" in page
    assert not list(tmp_path.rglob("*.draft"))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param(["-o", "json", "--to", "gone/x.json"], "gone/x.json", id="no-folder"),
        pytest.param(["-o", "pdf"], "pdf", id="unknown-format"),
        pytest.param(["--mode", "compat"], "compat", id="unknown-mode"),
    ],
)
def test_failure_is_one_line(linkwise, write, arguments, expected):
    write("cluster.yaml", CLUSTER)
    write("job.yaml", gang())

    code, out, err = linkwise("simulate", "job.yaml", "--cluster", "cluster.yaml", *arguments)

    assert (code, out) == (2, "")
    assert expected in err
    assert err.count("\n") == 1


def test_a_cluster_is_needed(linkwise, write):
    write("job.yaml", gang())

    code, out, err = linkwise("simulate", "job.yaml")

    assert (code, out) == (2, "")
    assert "--cluster" in err


@pytest.mark.parametrize(
    "manifest",
    [
        pytest.param(gang(), id="placed"),
        pytest.param(gang(40), id="waiting"),
        pytest.param(
            json.dumps(pod("bad", {"aliyun.com/gpu-mem": 2, "aliyun.com/gpu-core.percentage": 22})),
            id="denied",
        ),
        pytest.param(json.dumps(pod("counted", {"nvidia.com/gpu": 3})), id="counted"),
        pytest.param(json.dumps(pod("share", {"aliyun.com/gpu-mem": 3})), id="share"),
    ],
)
def test_table_shows_all_placements(linkwise, write, snapshot, manifest):
    write("cluster.yaml", CLUSTER)
    write("job.yaml", manifest)

    _, out, _ = linkwise("simulate", "job.yaml", "--cluster", "cluster.yaml")

    assert out == snapshot


def bound(name, node, record=None):
    metadata = {"name": name, "uid": name}
    if record is not None:
        metadata["annotations"] = {"linkwise.dev/allocation": json.dumps({"v": 1, **record})}
    made = pod(name, {"aliyun.com/gpu": 1}, **({"nodeName": node} if node else {}))
    return json.dumps(made | {"metadata": metadata})


def test_pods_with_unknown_gpus_are_named_with_their_node(linkwise, write):
    taken = {"node": "dgx-1", "gpus": [{"i": 2}], "class": "c", "bandwidth": 0, "plan": "p"}
    pods = [bound("stray", "dgx-0"), bound("late", None, taken | {"node": "gone"})]
    write("cluster.yaml", "---\n".join([CLUSTER, *(f"{one}\n" for one in pods)]))
    write("jobs.yaml", json.dumps(pod("one", {"aliyun.com/gpu": 1})))

    code, out, err = linkwise("simulate", "jobs.yaml", "--cluster", "cluster.yaml", "-o", "json")

    assert code == 0
    assert "node dgx-0 takes no GPU pods: default/stray: " in err
    assert "pod default/late: its record does not count: there is no node gone" in err
    stated = {node["name"]: node["unaccounted"] for node in json.loads(out)["nodes"]}
    assert stated["dgx-0"].startswith("default/stray: ")
    assert stated["dgx-1"] is None


def test_node_with_a_mismatch_takes_no_pods_and_is_named(linkwise, write):
    node = node_object("dgx-0", {keys.NODE_MODE: "topology"}, cpu="8", **{keys.GPU_WHOLE: "8"})
    topology = topology_map("dgx-0", PublishedTopology(dgx1_v100(), (True,) * 8, mismatch="PID 7"))
    write("cluster.json", snapshot_text([node, topology]))
    write("jobs.yaml", json.dumps(pod("one", {"aliyun.com/gpu": 1})))

    code, _, err = linkwise("simulate", "jobs.yaml", "--cluster", "cluster.json")

    assert code == 1
    assert "node dgx-0 takes no GPU pods: its agent reports: PID 7. End that process." in err


BOTH_MODES = {keys.MODE: "topology", keys.NODE_MODE: "share"}


@pytest.mark.parametrize(
    ("labels", "selector", "is_placed"),
    [
        pytest.param({keys.MODE: "topology"}, {}, True, id="main name"),
        pytest.param({keys.NODE_MODE: "topology"}, {}, True, id="alias"),
        pytest.param({keys.MODE: "topology"}, {keys.NODE_MODE: "topology"}, True, id="asked"),
        pytest.param({keys.MODE: "topology"}, {keys.MODE: "topology"}, True, id="asked by ours"),
        pytest.param({keys.NODE_MODE: "topology"}, {keys.MODE: "topology"}, False, id="not ours"),
        pytest.param(BOTH_MODES, {}, False, id="they disagree"),
    ],
)
def test_a_node_has_its_mode_by_either_label(linkwise, write, labels, selector, is_placed):
    node = node_object("dgx-0", labels, cpu="8", **{keys.GPU_WHOLE: "8"})
    write("cluster.json", snapshot_text([node]))
    write("jobs.yaml", json.dumps(pod("one", {"aliyun.com/gpu": 1}, nodeSelector=selector)))

    code, _, err = linkwise("simulate", "jobs.yaml", "--cluster", "cluster.json")

    assert (code == 0) is is_placed
    assert ("node dgx-0: linkwise.dev/mode=topology and ack.node.gpu.schedule=share" in err) is (
        labels is BOTH_MODES
    )


def test_kubelet_that_may_refuse_a_pod_is_noted(linkwise, write):
    policy = KubeletPolicy(topology_manager=TopologyManager.SINGLE_NUMA_NODE)
    node = node_object("dgx-0", {keys.NODE_MODE: "topology"}, cpu="8", **{keys.GPU_WHOLE: "8"})
    published = PublishedTopology(dgx1_v100(), (True,) * 8, kubelet=policy)
    write("cluster.json", snapshot_text([node, topology_map("dgx-0", published)]))
    write("jobs.yaml", json.dumps(pod("one", {"aliyun.com/gpu": 1})))
    arguments = ("simulate", "jobs.yaml", "--cluster", "cluster.json", "-o")

    (placed,) = json.loads(linkwise(*arguments, "json").out)["pods"]
    assert placed["notes"] == [f"of dgx-0: {policy.numa_note}"]
    page = linkwise(*arguments, "html").out
    assert '<p class="quiet small note">The kubelet refuses a pod' in page


def test_node_with_a_note_is_drawn_beside_an_equal_one_without(linkwise, write):
    refusing = KubeletPolicy(topology_manager=TopologyManager.SINGLE_NUMA_NODE)
    objects = []
    for name, policy in (("a", UNKNOWN_POLICY), ("b", refusing)):
        mode = {keys.NODE_MODE: "topology"}
        objects.append(node_object(name, mode, cpu="96", **{keys.GPU_WHOLE: "8"}))
        published = PublishedTopology(dgx1_v100(), (True,) * 8, kubelet=policy)
        objects.append(topology_map(name, published))
    write("cluster.json", snapshot_text(objects))
    write("jobs.yaml", gang(16))

    page = linkwise("simulate", "jobs.yaml", "--cluster", "cluster.json", "-o", "html").out

    assert page.count('<p class="quiet small note">The kubelet refuses a pod') == 1


@pytest.mark.parametrize(
    ("owner", "phase", "placed"),
    [
        ("job-1", "Running", True),
        ("job-1", "Succeeded", True),
        ("job-1", "Failed", False),
        ("job-0", "Running", False),
    ],
    ids=["runs", "completed", "failed", "of an earlier job"],
)
def test_a_gangs_replacement_counts_the_members_that_were_placed(simulate, owner, phase, placed):
    def member(name, uid, **spec):
        labels = {
            "pod-group.scheduling.sigs.k8s.io/name": "g",
            "pod-group.scheduling.sigs.k8s.io/min-available": "2",
        }
        job = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": uid, "controller": True}
        made = pod(name, {"aliyun.com/gpu": 1}, **spec)
        made["metadata"] |= {"uid": name, "labels": labels, "ownerReferences": [job]}
        return made

    gpus = {"v": 1, "node": "dgx-0", "gpus": [{"i": 1}], "class": "c", "bandwidth": 0, "plan": "p"}
    first = member("g-0", owner, nodeName="dgx-0") | {"status": {"phase": phase}}
    first["metadata"]["annotations"] = {"linkwise.dev/allocation": json.dumps(gpus)}

    _, answer = simulate(member("g-1", "job-1"), cluster=f"{CLUSTER}---\n{json.dumps(first)}\n")

    assert answer["gangs"][0]["placed"] is placed
    assert answer["gangs"][0]["reason"] == (None if placed else "1 of 2 members; missing: g-0")


FREE_PAIRS = """\
apiVersion: linkwise.dev/v1alpha1
kind: Cluster
nodes:
""" + "".join(
    f"- {{name: {name}, machine: l4x8, mode: topology, used: [{used}]}}\n"
    for names, free in (("abcd", (0, 1)), ("ef", (0, 1, 4, 5)))
    for name in names
    for used in [", ".join(f"{{gpu: {i}}}" for i in range(8) if i not in free)]
)


def test_plans_on_different_numbers_of_nodes_are_not_compared(simulate, linkwise):
    _, answer = simulate(gang(8), cluster=FREE_PAIRS)

    (found,) = answer["gangs"]
    assert (found["nodes"], found["bandwidth"]) == (["e", "f"], 3.4)
    assert (found["bandwidth_note"], found["best_possible_nodes"]) == ("nic unknown", 1)
    order = found["index_order"]
    assert (order["nodes"], order["bandwidth"]) == ([*"abcd"], 5.7)
    shown = linkwise("simulate", "jobs.yaml", "--cluster", "cluster.yaml").out
    assert shown.splitlines()[1:4] == [
        "  3.4 GB/s modelled all-reduce bandwidth, NICs not counted",
        "  3.4 GB/s the best that the empty cluster has, not comparable: it spans 1 node, this"
        " plan 2",
        "  5.7 GB/s in index order (a: 0 1, b: 0 1, c: 0 1 and 1 more), not comparable: it spans 4"
        " nodes, this plan 2",
    ]


PAIRS_OF_H100 = """\
apiVersion: linkwise.dev/v1alpha1
kind: Cluster
nodes:
""" + "".join(
    f"- {{name: {name}, machine: dgx-h100, mode: topology, used: [{used}]}}\n"
    for name in "abcd"
    for used in [", ".join(f"{{gpu: {i}}}" for i in range(2, 8))]
)


@pytest.mark.parametrize(
    ("nic", "bandwidth", "note"),
    [
        pytest.param(None, 54.9, "nic unknown", id="NICs unknown"),
        pytest.param(400, 54.9, None, id="PCIe out of nodes is slower"),
        pytest.param(50, 28.6, None, id="NICs are slower"),
    ],
)
def test_slower_of_links_and_nics_counts_where_the_policy_states_these(
    simulate, linkwise, write, nic, bandwidth, note
):
    write("policy.yaml", f"gangs: {{nicBandwidth: {nic or 'null'}}}\n")

    _, answer = simulate(gang(8), cluster=PAIRS_OF_H100, arguments=("--policy", "policy.yaml"))

    (found,) = answer["gangs"]
    assert (len(found["nodes"]), found["bandwidth"], found["bandwidth_note"]) == (
        4,
        bandwidth,
        note,
    )
    assert (found["best_possible"], found["best_possible_nodes"]) == (211.9, 1)
    arguments = ("jobs.yaml", "--cluster", "cluster.yaml", "--policy", "policy.yaml")
    shown = linkwise("simulate", *arguments).out
    assert (", NICs not counted\n" in shown) is (nic is None)
    assert ("not comparable" in shown) is (nic is None)


def test_plans_on_the_same_number_of_nodes_are_compared(simulate, linkwise):
    _, answer = simulate(gang(10), cluster=FREE_PAIRS.replace("{gpu: 6}, ", ""))

    (found,) = answer["gangs"]
    assert found["best_possible_nodes"] == len(found["nodes"]) == 2
    shown = linkwise("simulate", "jobs.yaml", "--cluster", "cluster.yaml").out
    assert "GB/s the best that the empty cluster has\n" in shown


def test_single_pod_has_the_bandwidth_of_the_table(simulate, linkwise):
    _, answer = simulate(pod("pair", {"aliyun.com/gpu": 2}))

    (found,) = answer["pods"]
    assert (found["bandwidth"], found["best_possible"]) == (40.0, 40.0)
    shown = linkwise("simulate", "jobs.yaml", "--cluster", "cluster.yaml").out
    assert "  40.0 GB/s modelled all-reduce bandwidth\n" in shown


@pytest.mark.parametrize(
    ("workers", "word", "never"),
    [(8, "waits", False), (40, "never", True)],
    ids=["it fits the empty cluster", "it does not"],
)
def test_pod_larger_than_the_cluster_never_fits(simulate, linkwise, workers, word, never):
    code, answer = simulate(gang(8), gang(workers).replace("vgg16", "bert"))

    assert code == 1
    (found,) = [one for one in answer["gangs"] if one["name"] == "mpijob-bert"]
    assert (found["placed"], found["never"]) == (False, never)
    assert {one["never"] for one in answer["pods"] if one["gang"] == "mpijob-bert"} == {never}
    shown = linkwise("simulate", "jobs.yaml", "--cluster", "cluster.yaml").out
    assert f"{word} gang default/mpijob-bert\n" in shown
    assert ("It would not fit if nothing else ran: add nodes, or ask for less." in shown) is never
    assert f"{workers} {'never placed' if never else 'waiting'}, " in shown


COUNTED = """\
apiVersion: linkwise.dev/v1alpha1
kind: Cluster
nodes: [{name: plain, count: 2, machine: dgx1-v100}]
"""


def test_single_pod_on_nodes_of_nvidias_plugin_is_a_guess(simulate, linkwise):
    guess = "a guess by count: kube-scheduler chooses the node, and NVIDIA's plugin the GPUs"

    _, answer = simulate(pod("pair", {"nvidia.com/gpu": 2}), cluster=COUNTED)

    (found,) = answer["pods"]
    assert guess in found["notes"]
    assert (found["gpus"], found["count"]) == (None, 2)
    shown = linkwise("simulate", "jobs.yaml", "--cluster", "cluster.yaml").out
    assert f"  note: {guess.capitalize()[:1]}{guess[1:]}." in shown


def test_gang_is_a_guess_if_the_policy_leaves_it_to_the_scheduler(simulate, linkwise, write):
    text = gang().replace("aliyun.com/gpu: 1", "nvidia.com/gpu: 1")
    simulate(text, cluster=COUNTED)
    write(
        "policy.yaml",
        "apiVersion: linkwise.dev/v1alpha1\nkind: Policy\nplacement: {nvidia: off}\n",
    )

    arguments = ("jobs.yaml", "--cluster", "cluster.yaml", "--policy", "policy.yaml")
    shown = linkwise("simulate", *arguments).out

    assert shown.count("A guess by count") == 4
    assert "placed gang" not in shown


def test_gang_on_counted_nodes_has_counts_instead_of_gpus(simulate, linkwise):
    text = gang().replace("aliyun.com/gpu: 1", "nvidia.com/gpu: 1")

    _, answer = simulate(text, cluster=COUNTED)

    (found,) = answer["gangs"]
    assert found["counts"] == {"plain-0": 4}
    assert found["gpus"] == {"plain-0": []}
    assert (found["bandwidth"], found["bandwidth_note"]) == (None, "GPUs unknown")
    workers = [one for one in answer["pods"] if one["node"]]
    assert [(one["gpus"], one["count"]) for one in workers] == [(None, 1)] * 4
    shown = linkwise("simulate", "jobs.yaml", "--cluster", "cluster.yaml").out
    assert "The bandwidth is not known: NVIDIA's plugin chooses the GPUs of plain-0." in shown
    assert "plain-0  1, chosen by NVIDIA's plugin\n" in shown
    assert "guess" not in shown


def test_gang_that_takes_a_whole_counted_node_has_its_bandwidth(simulate, linkwise):
    text = gang(8).replace("aliyun.com/gpu: 1", "nvidia.com/gpu: 1")

    _, answer = simulate(text, cluster=COUNTED)

    (found,) = answer["gangs"]
    assert found["counts"] == {"plain-0": 8}
    assert found["bandwidth"] == found["best_possible"] > 0
    assert "GB/s modelled" in linkwise("simulate", "jobs.yaml", "--cluster", "cluster.yaml").out


EXACT = """\
apiVersion: linkwise.dev/v1alpha1
kind: Cluster
nodes:
- name: dgx
  machine: dgx1-v100
  mode: topology
  labels: {linkwise.dev/resource-name: nvidia.com-gpu}
- {name: plain, machine: dgx1-v100, labels: {pool: plain}}
"""


def test_a_gang_of_nvidia_gpus_is_placed_on_the_nodes_of_linkwise(simulate):
    text = gang().replace("aliyun.com/gpu: 1", "nvidia.com/gpu: 1")
    left = pod("left", {"nvidia.com/gpu": 8}, nodeSelector={"pool": "plain"})

    code, answer = simulate(text, left, cluster=EXACT)

    (found,) = answer["gangs"]
    assert code == 0
    assert (found["placed"], found["gpus"], found["bandwidth"]) == (
        True,
        {"dgx": [0, 1, 2, 3]},
        55.2,
    )
    (counted,) = [one for one in answer["pods"] if one["name"] == "left"]
    assert (counted["node"], counted["gpus"]) == ("plain", None)


POD = {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": 1}}}]}
TEMPLATE = {"spec": POD}
CPU_ONLY = {"spec": {"containers": [{"name": "main"}]}}
PARALLEL = {"parallelism": 4, "completions": 4, "template": TEMPLATE}
UNMARKED = {
    "PyTorchJob": ("kubeflow.org/v1", {"pytorchReplicaSpecs": {"Worker": {"replicas": 4}}}),
    "TFJob": ("kubeflow.org/v1", {"tfReplicaSpecs": {"Worker": {"replicas": 4}}}),
    "MPIJob": (
        "kubeflow.org/v2beta1",
        {"mpiReplicaSpecs": {"Launcher": {"template": CPU_ONLY}, "Worker": {"replicas": 4}}},
    ),
    "JobSet": (
        "jobset.x-k8s.io/v1alpha2",
        {"replicatedJobs": [{"name": "w", "template": {"spec": PARALLEL}}]},
    ),
    "LeaderWorkerSet": (
        "leaderworkerset.x-k8s.io/v1",
        {"leaderWorkerTemplate": {"size": 4, "workerTemplate": TEMPLATE}},
    ),
    "RayCluster": (
        "ray.io/v1",
        {
            "headGroupSpec": {"template": CPU_ONLY},
            "workerGroupSpecs": [{"groupName": "g", "replicas": 4, "template": TEMPLATE}],
        },
    ),
    "Job": (
        "batch.volcano.sh/v1alpha1",
        {
            "schedulerName": "default-scheduler",
            "tasks": [{"name": "t", "replicas": 4, "template": TEMPLATE}],
        },
    ),
}


@pytest.mark.parametrize("kind", UNMARKED)
def test_four_pods_of_each_kind_of_job_get_the_best_gpus_without_a_mark(simulate, kind):
    version, spec = UNMARKED[kind]
    for roles in spec.values():
        if isinstance(roles, dict) and "Worker" in roles:
            roles["Worker"]["template"] = TEMPLATE
    job = {"apiVersion": version, "kind": kind, "metadata": {"name": "train"}, "spec": spec}

    code, answer = simulate(job, cluster=EXACT)

    (found,) = answer["gangs"]
    assert (code, found["size"], found["placed"], found["bandwidth"]) == (0, 4, True, 55.2)


UNLABELLED = """\
apiVersion: v1
kind: Node
metadata: {name: gpu-0}
status: {allocatable: {cpu: "96", memory: 512Gi, pods: "110", RESOURCE: "8"}}
"""


@pytest.mark.parametrize(
    ("offered", "asked", "change"),
    [
        pytest.param(
            "aliyun.com/gpu",
            "aliyun.com/gpu",
            "label the nodes that offer aliyun.com/gpu with linkwise.dev/mode=topology",
            id="whole",
        ),
        pytest.param(
            "aliyun.com/gpu-mem",
            "aliyun.com/gpu-mem",
            "label the nodes that offer aliyun.com/gpu-mem with linkwise.dev/mode=share",
            id="share",
        ),
        pytest.param(
            "nvidia.com/gpu",
            "aliyun.com/gpu",
            "ask for nvidia.com/gpu, which nodes offer",
            id="another resource",
        ),
        pytest.param(
            "example.com/gpu", "aliyun.com/gpu", "add nodes, or ask for less", id="neither"
        ),
    ],
)
def test_finding_names_the_label_or_resource_to_change(simulate, linkwise, offered, asked, change):
    cluster = UNLABELLED.replace("RESOURCE", offered)

    simulate(pod("a", {asked: 2}), cluster=cluster)

    shown = linkwise("simulate", "jobs.yaml", "--cluster", "cluster.yaml").out
    assert f"  help: It would not fit if nothing else ran: {change}.\n" in shown
    checked = linkwise("check", "jobs.yaml", "--cluster", "cluster.yaml").out
    fix = "ask for less, or add a node that has as much" if "add nodes" in change else change
    assert f"    fix: {fix[:1].upper()}{fix[1:]}.\n" in checked


@pytest.mark.parametrize("command", ["simulate", "check"])
def test_a_cluster_file_without_nodes_is_refused(linkwise, write, command):
    write("cluster.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: team}\n")
    write("jobs.yaml", gang())

    ran = linkwise(command, "jobs.yaml", "--cluster", "cluster.yaml")

    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("linkwise: cluster.yaml: there is no node in it. Add Nodes, ")


def test_unjudged_objects_are_exit_code_3_with_a_list(linkwise, write):
    write("cluster.yaml", CLUSTER)
    write(
        "jobs.yaml",
        "apiVersion: example.org/v1\nkind: Trainer\nmetadata: {name: r}\n---\n" + gang(),
    )

    ran = linkwise("simulate", "jobs.yaml", "--cluster", "cluster.yaml", "-o", "json")

    assert ran.code == 3
    assert ran.err == "linkwise: jobs.yaml:1: Trainer (example.org/v1) was not looked at.\n"
    assert [one["kind"] for one in json.loads(ran.out)["unjudged"]] == ["Trainer"]


def test_quietly_only_what_is_not_placed_is_shown(linkwise, write):
    write("cluster.yaml", CLUSTER)
    write("good.yaml", gang())
    write("large.yaml", gang(40).replace("vgg16", "bert"))

    assert linkwise("simulate", "good.yaml", "--cluster", "cluster.yaml", "-q").out == ""
    shown = linkwise("simulate", "good.yaml", "large.yaml", "--cluster", "cluster.yaml", "-q").out
    assert shown.startswith("never gang default/mpijob-bert\n")
    assert "vgg16" not in shown


MIG = {"nvidia.com/mig-1g.5gb": 1}
HAMI = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000}


@pytest.mark.parametrize(
    ("job", "named"),
    [
        (pod("p", MIG), "MIG devices (nvidia.com/mig-1g.5gb)"),
        (pod("p", {}, resourceClaims=[{"name": "gpu"}]), "DRA"),
        (pod("p", HAMI), "HAMi"),
    ],
    ids=["mig", "claim", "hami"],
)
def test_gpus_of_other_systems_are_named(simulate, linkwise, job, named):
    _, answer = simulate(job, pod("plain", {}))
    shown = linkwise("simulate", "jobs.yaml", "--cluster", "cluster.yaml").out

    first, second = answer["pods"]
    assert named in first["reason"]
    assert first["node"] is None
    assert "no GPU" in second["reason"]
    assert named in " ".join(shown.split())
    assert "2 pods: 1 with GPUs that others give out, 1 without GPUs" in shown
    assert "left to kube-scheduler: plain\n" in shown


def test_the_page_names_gpus_that_others_give_out(simulate, linkwise):
    simulate(pod("p", MIG), pod("plain", {}))

    page = linkwise("simulate", "jobs.yaml", "--cluster", "cluster.yaml", "-o", "html").out

    assert "1 with GPUs that others give out, 1 without GPUs" in page
    assert "nvidia.com/mig-1g.5gb" in page


REPLICAS = """\
apiVersion: apps/v1
kind: KIND
metadata: {name: web}
spec:
  replicas: 3
  serviceName: web
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, resources: {limits: {aliyun.com/gpu: 1}}}]}
"""
SECOND_ONLY = """\
[{"name": "second", "objectSelector": {"matchLabels": {"apps.kubernetes.io/pod-index": "1"}},
  "effect": {"labels": {"alibabacloud.com/compute-class": "none"}, "annotations": {}}}]
"""


@pytest.mark.parametrize(
    ("kind", "verdicts"),
    [
        ("Deployment", ["allowed", "allowed", "allowed"]),
        ("StatefulSet", ["allowed", "denied", "allowed"]),
    ],
)
def test_each_replica_is_admitted_by_its_own_labels(simulate, write, kind, verdicts):
    profile = write("profile.json", SECOND_ONLY)
    arguments = ("--profile", str(profile))

    _, answer = simulate(REPLICAS.replace("KIND", kind), arguments=arguments)

    assert [one["name"] for one in answer["pods"]] == ["web-0", "web-1", "web-2"]
    assert [one["verdict"] for one in answer["pods"]] == verdicts


def test_replicas_of_nvidias_plugin_are_what_is_left_of_its_nodes(simulate, linkwise):
    amounts = {"cpu": "8", "memory": "32Gi", "nvidia.com/gpu.shared": "4"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "t4"}}
    cluster = json.dumps({**node, "status": {"allocatable": amounts}})

    simulate(pod("p", {"nvidia.com/gpu.shared": 1}), cluster=cluster)
    simulated = linkwise("simulate", "jobs.yaml", "--cluster", "cluster.yaml").out
    checked = linkwise("check", "jobs.yaml", "--cluster", "cluster.yaml").out

    assert "t4    default  4 of 4 replicas  3 of 4 replicas\n" in simulated
    assert "fits now on t4\n" in checked
    assert "0 of 0" not in simulated + checked


# ---- Preemption.

EMPTY = """\
apiVersion: linkwise.dev/v1alpha1
kind: Cluster
nodes:
- {name: dgx, count: 2, machine: dgx1-v100, mode: topology}
"""
WHOLE_NODE = {keys.GPU_WHOLE: 8}


def a_running_gang(name, node, hours=2, controller="JobSet"):
    """Return the pods of a gang of team-b that has had all GPUs of a node for some hours."""
    start = datetime.fromtimestamp(wall() - 3600 * hours, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    owner = {"kind": controller, "name": name, "uid": f"uid-of-{name}", "controller": True}
    labels = {keys.POD_GROUP_NAME: name, keys.POD_GROUP_MIN_AVAILABLE: "8"}
    for i in range(8):
        placed = placed_pod(f"{name}-{i}", {keys.GPU_WHOLE: 1}, node, GPUShare(i), labels=labels)
        metadata = {"namespace": "team-b", "uid": f"{name}-{i}", "ownerReferences": [owner]}
        placed["metadata"] |= metadata
        yield placed | {"status": {"phase": "Running", "startTime": start}}


def two_gangs(*more, **nightly):
    objects = [*a_running_gang("nightly", "dgx-0", **nightly), *a_running_gang("daily", "dgx-1", 3)]
    return "\n---\n".join([EMPTY, *map(json.dumps, [*objects, *more])])


def a_budget(gang):
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "keep", "namespace": "team-b"},
        "spec": {"selector": {"matchLabels": {keys.POD_GROUP_NAME: gang}}},
        "status": {"disruptionsAllowed": 7},
    }


def a_policy(text):
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": keys.POLICY_NAME, "namespace": keys.POLICY_NAMESPACE},
        "data": {keys.POLICY_KEY: text},
    }


def a_job(name, **spec):
    metadata = {"name": name, "namespace": "team-b", "uid": f"uid-of-{name}"}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def test_a_pod_that_waits_names_the_gang_that_would_be_preempted(simulate):
    code, answer = simulate(pod("prod", WHOLE_NODE, priority=1000), cluster=two_gangs())

    (found,) = answer["pods"]
    (preempted,) = found["preempts"]
    assert (code, found["node"]) == (1, None)
    assert 7_190 < preempted.pop("running_seconds") < 7_260
    assert preempted == {
        "kind": "gang",
        "namespace": "team-b",
        "name": "nightly",
        "pods": 8,
        "gpu_hours": 16.0,
    }


def test_the_text_says_what_an_eviction_loses(linkwise, write):
    write("cluster.yaml", two_gangs())
    write("job.json", json.dumps(pod("prod", WHOLE_NODE, priority=1000)))

    ran = linkwise("simulate", "job.json", "--cluster", "cluster.yaml")

    assert "  would preempt gang team-b/nightly: 8 pods, running 2 h 0 min, 16 GPU h\n" in ran.out


@pytest.mark.parametrize(
    ("others", "options"),
    [
        pytest.param((a_budget("nightly"),), {}, id="a budget would be violated"),
        pytest.param((), {"hours": 0}, id="it started a moment ago"),
        pytest.param(
            (a_job("nightly"),), {"controller": "Job"}, id="its Job would count a failure"
        ),
    ],
)
def test_another_gang_is_preempted(simulate, others, options):
    # Made here: a test may run long after it was collected.
    cluster = two_gangs(*others, **options)
    _, answer = simulate(pod("prod", WHOLE_NODE, priority=1000), cluster=cluster)

    assert [unit["name"] for unit in answer["pods"][0]["preempts"]] == ["daily"]


@pytest.mark.parametrize(
    ("fields", "spec", "preempts"),
    [
        pytest.param({"value": 9}, {"priorityClassName": "prod"}, True, id="its class"),
        pytest.param({"value": 9}, {"priorityClassName": "other"}, False, id="unknown class"),
        pytest.param({"value": 9}, {}, False, id="no class"),
        pytest.param({"value": 9, "globalDefault": True}, {}, True, id="default class"),
        pytest.param(
            {"value": 9, "preemptionPolicy": "Never"},
            {"priorityClassName": "prod"},
            False,
            id="a class that never preempts",
        ),
    ],
)
def test_a_priority_class_of_the_cluster_gives_a_pod_its_priority(simulate, fields, spec, preempts):
    head = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    a_class = head | {"metadata": {"name": "prod"}} | fields

    _, answer = simulate(pod("high", WHOLE_NODE, **spec), cluster=two_gangs(a_class))

    assert ("preempts" in answer["pods"][0]) == preempts


def test_kueue_decides_about_jobs_in_its_queues(simulate):
    queued = pod("queued", WHOLE_NODE, priority=1000)
    queued["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "research"}
    victims = [json.loads(text) for text in two_gangs().split("\n---\n")[1:]]
    for victim in victims:
        victim["metadata"]["labels"]["kueue.x-k8s.io/managed"] = "true"
    cluster = "\n---\n".join([EMPTY, *map(json.dumps, victims)])

    _, of_queue = simulate(queued, cluster=two_gangs())
    _, beside = simulate(pod("prod", WHOLE_NODE, priority=1000), cluster=cluster)

    assert "preempts" not in of_queue["pods"][0]
    assert "preempts" not in beside["pods"][0]


def test_each_gang_is_preempted_for_one_unit(simulate):
    jobs = [pod(f"prod-{i}", WHOLE_NODE, priority=1000) for i in range(3)]

    _, answer = simulate(*jobs, cluster=two_gangs())

    names = [[unit["name"] for unit in found.get("preempts", ())] for found in answer["pods"]]
    assert names == [["nightly"], ["daily"], []]


@pytest.mark.parametrize(
    ("spec", "policy"),
    [
        pytest.param({}, "", id="no priority"),
        pytest.param({"priority": 9, "preemptionPolicy": "Never"}, "", id="preemptionPolicy Never"),
        pytest.param({"priority": 9}, "gangs: {preemption: {mode: never}}", id="mode never"),
        pytest.param(
            {"priority": 9}, "gangs: {preemption: {minRunMinutes: 600}}", id="minRunMinutes"
        ),
    ],
)
def test_nothing_is_preempted(simulate, spec, policy):
    cluster = two_gangs(a_policy(policy))

    code, answer = simulate(pod("prod", WHOLE_NODE, **spec), cluster=cluster)

    assert code == 1
    assert "preempts" not in answer["pods"][0]


COUNTED_NODES = EMPTY.replace("topology", "default")


def a_pod_of_others(node, **fields):
    owner = {"kind": "ReplicaSet", "name": "web", "uid": "web", "controller": True}
    made = pod(f"web-{node}", {keys.NVIDIA_GPU: 8}, nodeName=node, priority=-1)
    made["metadata"] |= {"namespace": "team-b", "uid": node, "ownerReferences": [owner], **fields}
    return made | {"status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}}


@pytest.mark.parametrize(
    ("policy", "fields", "names"),
    [
        pytest.param("others: lowerPriority", {}, ["web-dgx-0"], id="by policy"),
        pytest.param("", {}, [], id="the default"),
        pytest.param(
            "others: lowerPriority",
            {"annotations": {"pod-group-name": "g"}},
            ["web-dgx-1"],
            id="not of a gang of another system",
        ),
    ],
)
def test_a_pod_that_linkwise_did_not_place_is_preempted_by_policy(simulate, policy, fields, names):
    running = [a_pod_of_others("dgx-0", **fields), a_pod_of_others("dgx-1")]
    text = f"placement: {{nvidia: count}}\ngangs: {{preemption: {{{policy}}}}}"
    cluster = "\n---\n".join([COUNTED_NODES, *map(json.dumps, [*running, a_policy(text)])])

    _, answer = simulate(pod("prod", {keys.NVIDIA_GPU: 8}, priority=9), cluster=cluster)

    units = answer["pods"][0].get("preempts", ())
    assert [(unit["kind"], unit["name"]) for unit in units] == [("pod", name) for name in names]


def test_nothing_is_preempted_where_a_namespace_has_too_many_budgets(simulate):
    cluster = two_gangs(*(a_budget(f"gang-{n}") for n in range(OF_NAMESPACE_MAX + 1)))

    _, answer = simulate(pod("prod", WHOLE_NODE, priority=1000), cluster=cluster)

    assert "preempts" not in answer["pods"][0]


def test_a_gang_that_fits_preempts_nothing(simulate):
    _, answer = simulate(gang(), cluster="\n---\n".join([EMPTY, json.dumps(a_budget("x"))]))

    assert answer["gangs"][0]["placed"]
    assert "preempts" not in answer["gangs"][0]


@pytest.mark.parametrize("is_snapshot", [False, True], ids=["objects", "snapshot"])
@pytest.mark.parametrize("namespace", ["default", "data"], ids=["its own", "by labels"])
def test_running_pods_count_for_the_rules_about_other_pods(simulate, is_snapshot, namespace):
    term = {"topologyKey": keys.HOSTNAME, "labelSelector": {"matchLabels": {"app": "db"}}}
    if namespace != "default":
        term["namespaceSelector"] = {"matchLabels": {"team": "data"}}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    database = pod("db", {}, nodeName="a")
    database["metadata"] |= {"namespace": namespace, "uid": "db", "labels": {"app": "db"}}
    labelled = {"name": "data", "labels": {"team": "data"}}
    objects = [
        item
        for name in "ab"
        for item in (
            node_object(
                name,
                {keys.NODE_MODE: "topology", keys.HOSTNAME: name},
                **{keys.GPU_WHOLE: "8", "cpu": "96", "pods": "110"},
            ),
            topology_map(name, PublishedTopology(dgx1_v100(), (True,) * 8)),
        )
    ]
    objects += [{"apiVersion": "v1", "kind": "Namespace", "metadata": labelled}, database]
    kept = [reduced(each["kind"], each) for each in objects] if is_snapshot else objects
    near, far = (
        pod(name, {keys.GPU_WHOLE: 1}, affinity={kind: {required: [term]}})
        for name, kind in (("near", "podAffinity"), ("far", "podAntiAffinity"))
    )

    _, answer = simulate(near, far, cluster=snapshot_text(kept))

    assert [one["node"] for one in answer["pods"]] == ["a", "b"]
    assert not any("left to kube-scheduler" in json.dumps(one) for one in answer["pods"])
