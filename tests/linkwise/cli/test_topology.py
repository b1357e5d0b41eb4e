import json

import pytest
import yaml
from support.builders import node_object, topology_map

from linkwise.cluster import keys
from linkwise.cluster.nodes.kubelet_policy import CPUManager, KubeletPolicy
from linkwise.cluster.nodes.topology_configmap import PublishedTopology
from linkwise.topology.catalogue import NAMES, entry
from linkwise.views.live.snapshot import snapshot_text

TWO = "\tGPU0\tGPU1\nGPU0\t X \tNV2\nGPU1\tNV2\t X \n"
ONE_WAY = "\tGPU0\tGPU1\nGPU0\t X \tNV2\nGPU1\tNV1\t X \n"


def test_show_answers_with_the_documented_shape(linkwise):
    code, out, err = linkwise("topology", "show", "dgx1-v100", "-o", "json")

    shown = json.loads(out)
    assert (code, err) == (0, "")
    assert (shown["gpus"], shown["switched"]) == (8, False)
    assert shown["class"].startswith("8gpu-")
    assert shown["links"][0] == ["X", "NV1", "NV1", "NV2", "NV2", "SYS", "SYS", "SYS"]
    assert shown["bandwidth"][0] == [0.0, 20.0, 20.0, 40.0, 40.0, 6.0, 6.0, 6.0]
    assert shown["numa"] == [0] * 4 + [1] * 4
    assert [set(nic) for nic in shown["nics"]] == [{"name", "levels"}] * 4
    assert shown["warnings"] == []


def test_show_is_a_matrix_for_people(linkwise):
    out = linkwise("topology", "show", "dgx1-v100").out

    assert out.startswith("dgx1-v100 8 GPUs, NVLink mesh, class 8gpu-")
    assert "  GPU0  X     NV1   NV1   NV2   NV2   SYS   SYS   SYS   0\n" in out
    assert "  GPU0  -     20.0  20.0  40.0  40.0  6.0   6.0   6.0\n" in out
    assert "  4  55.2  55.2\n" in out
    assert "  mlx5_0  PIX   PIX   PHB" in out
    assert "\x1b" not in out


@pytest.mark.parametrize(
    ("name", "kind"), [("dgx2", "NVSwitch"), ("t4x4", "PCIe only"), ("v100x4-p3", "NVLink mesh")]
)
def test_show_names_the_kind_of_machine(linkwise, name, kind):
    assert f", {kind}, class" in linkwise("topology", "show", name).out


def test_a_machine_is_read_from_a_pipe(linkwise):
    code, out, _ = linkwise("topology", "show", "-", stdin=TWO)

    assert code == 0
    assert out.startswith("<stdin> 2 GPUs, NVLink mesh")


def test_warnings_of_a_reader_are_shown(linkwise, write):
    write("m.txt", ONE_WAY)

    assert (
        "warning: GPU0 and GPU1 are linked by NV2 one way"
        in linkwise("topology", "show", "m.txt").out
    )
    shown = json.loads(linkwise("topology", "show", "m.txt", "-o", "json").out)
    assert shown["links"][0][1] == "N-A"
    assert len(shown["warnings"]) == 1
    best = linkwise("topology", "best", "m.txt", "--count", "2")
    assert "warning: GPU0 and GPU1" in best.out


def test_the_gpu_model_sets_the_speed_of_links_alone(linkwise, write):
    write("m.txt", TWO)

    def speed(*arguments):
        out = linkwise("topology", "show", *arguments, "-o", "json").out
        return json.loads(out)["bandwidth"][0][1]

    assert speed("m.txt") == 40.0
    assert speed("m.txt", "--gpu-model", "p100") == 36.0
    assert speed("dgx1-v100", "--gpu-model", "P100") == 18.0
    assert speed("t4x4", "--gpu-model", "P100") == speed("t4x4")


def test_an_unknown_gpu_model_is_refused_with_the_list(linkwise):
    code, out, err = linkwise("topology", "show", "dgx1-v100", "--gpu-model", "Z80")

    assert (code, out) == (2, "")
    assert err.startswith("linkwise: --gpu-model: unknown GPU model 'Z80'")
    assert "V100" in err
    assert "B300" in err


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (TWO.replace("GPU1\tNV2\t X \n", ""), "m.txt:1: the matrix in line 1 is not whole"),
        ("hello\n", "m.txt:1: no GPU matrix found"),
        ("<system></system>\n", "m.txt:1: "),
    ],
    ids=["a missing row", "no matrix", "XML without GPUs"],
)
def test_a_text_that_is_no_machine_is_refused_with_its_line(linkwise, write, text, complaint):
    write("m.txt", text)

    code, out, err = linkwise("topology", "show", "m.txt")

    assert (code, out) == (2, "")
    assert err.startswith(f"linkwise: {complaint}")
    assert err.count("\n") == 1


def test_partial_matrix_is_read_with_option(linkwise, write):
    write("m.txt", "\tGPU0\tGPU1\tGPU2\nGPU0\t X \tNV2\tSYS\nGPU1\tNV2\t X \tSYS\n")

    assert linkwise("topology", "show", "m.txt").code == 2
    code, out, _ = linkwise("topology", "show", "m.txt", "--partial", "-o", "json")
    assert (code, json.loads(out)["gpus"]) == (0, 2)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("dgx1-v10", "Did you mean dgx1-v100?"),
        ("zzz", "See linkwise topology list."),
        ("zzz.txt", "Name a file that can be read, or - for a pipe."),
    ],
)
def test_unknown_machine_is_refused_with_a_hint(linkwise, name, hint):
    code, out, err = linkwise("topology", "show", name)

    assert (code, out) == (2, "")
    assert err.startswith(f"linkwise: {name}: no such file or directory.")
    assert err.endswith(f"{hint}\n")


NODE = {keys.NODE_MODE: "topology"}
STATIC = KubeletPolicy(CPUManager.STATIC)
PUBLISHED = PublishedTopology(
    entry("dgx1-v100").machine, (True,) * 7 + (False,), mismatch="PID 7", kubelet=STATIC
)


@pytest.fixture
def show_node(linkwise, write):
    """Shows the machine of a node in a cluster with three of them."""
    labels = {**NODE, keys.GFD_PRODUCT: "NVIDIA-H200", keys.GFD_COUNT: "8"}
    objects = [
        node_object("dgx-0", NODE, **{keys.GPU_WHOLE: "8"}),
        topology_map("dgx-0", PUBLISHED),
        node_object("h200-0", labels, **{keys.GPU_WHOLE: "8"}),
        node_object("odd-0", NODE, **{keys.GPU_WHOLE: "8"}),
        node_object("cpu-0", {}, cpu="4"),
    ]

    def call(node, *arguments):
        write("cluster.json", snapshot_text(objects))
        selected = ("--node", node, "--cluster", "cluster.json")
        return linkwise("topology", "show", *selected, *arguments)

    return call


def test_machine_of_a_node_is_shown_with_its_source_and_health(show_node):
    out = show_node("dgx-0").out

    assert out.startswith("dgx-0 8 GPUs, NVLink mesh, class 8gpu-")
    assert "  GPU0  X     NV1   NV1   NV2   NV2   SYS   SYS   SYS   0\n" in out
    assert (
        "\nSource: published by the agent of the node\nUnhealthy: GPU7\nMismatch: PID 7\n"
        "Kubelet: The exclusive CPUs of a Guaranteed pod may be on another socket than its GPUs"
    ) in out
    labelled = show_node("h200-0").out
    assert labelled.endswith("\nSource: identified by labels of GPU feature discovery\n")


def test_document_of_a_node_is_that_of_its_machine_with_more_fields(linkwise, show_node):
    machine = json.loads(linkwise("topology", "show", "dgx1-v100", "-o", "json").out)

    shown = json.loads(show_node("dgx-0", "-o", "json").out)

    assert shown == {
        **machine,
        "node": "dgx-0",
        "machine_source": "agent",
        "uuids": [None] * 8,
        "unhealthy": [7],
        "mismatch": "PID 7",
        "kubelet": {"cpu_manager": "static", "topology_manager": None, "note": STATIC.numa_note},
    }


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ("none", "there is no node none"),
        ("odd-0", "the links of the GPUs of odd-0 are unknown"),
        ("cpu-0", "node cpu-0: it has no GPUs"),
    ],
)
def test_node_without_a_known_machine_is_an_error(show_node, node, message):
    ran = show_node(node)

    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("dgx2", "--node", "dgx-0"), "Leave FILE and its options out"),
        (("--node", "dgx-0", "--partial"), "Leave FILE and its options out"),
        (("dgx2", "--cluster", "cluster.json"), "Name one with --node"),
    ],
)
def test_file_and_node_exclude_each_other(linkwise, arguments, message):
    ran = linkwise("topology", "show", *arguments)

    assert ran.code == 2
    assert message in ran.err


def best(linkwise, *arguments):
    code, out, err = linkwise("topology", "best", *arguments, "-o", "json")
    assert err == ""
    return code, json.loads(out)


def test_best_answers_with_the_documented_shape(linkwise):
    code, answer = best(linkwise, "dgx1-v100", "--count", "2", "--free", "0,1,3")

    assert code == 0
    assert answer | {"class": "", "reason": "", "left": None, "best_free": None} == {
        "apiVersion": "cli.linkwise.dev/v1",
        "kind": "Choice",
        "gpus": [0, 3],
        "bandwidth": 40.0,
        "unit": "GB/s",
        "mode": "keep",
        "class": "",
        "best_possible": 40.0,
        "best_free": None,
        "index_order": {"gpus": [0, 1], "bandwidth": 20.0},
        "runner_up": {"gpus": [0, 1], "bandwidth": 20.0},
        "left": None,
        "exact": True,
        "reason": "",
        "warnings": [],
    }


def test_one_gpu_has_no_bandwidth(linkwise):
    _, answer = best(linkwise, "dgx1-v100", "--count", "1", "--mode", "fast")

    assert answer["bandwidth"] is answer["best_possible"] is None
    assert answer["index_order"]["bandwidth"] is None


def test_the_required_gpus_are_in_the_set(linkwise):
    _, answer = best(linkwise, "dgx1-v100", "--count", "2", "--require", "4", "--mode", "fast")

    assert 4 in answer["gpus"]
    assert answer["mode"] == "fast"


@pytest.mark.parametrize("mode", ["fast", "keep", "compat"])
def test_every_mode_answers(linkwise, mode):
    code, answer = best(linkwise, "l4x8", "--count", "4", "--mode", mode, "--multi-node")

    assert (code, answer["mode"], len(answer["gpus"])) == (0, mode, 4)


@pytest.mark.parametrize(
    "arguments",
    [("--count", "9"), ("--count", "1", "--require", "0,1"), ("--count", "2", "--free", "")],
    ids=["too many", "more required than asked", "none free"],
)
def test_a_set_that_does_not_exist_is_an_answer(linkwise, arguments):
    code, answer = best(linkwise, "dgx1-v100", *arguments)

    assert (code, answer["gpus"]) == (1, None)
    assert answer["reason"]
    assert linkwise("topology", "best", "dgx1-v100", *arguments).out.startswith("no such set: ")


def test_best_explains_itself_to_people(linkwise):
    out = linkwise("topology", "best", "dgx1-v100", "--count", "2").out

    first, *rest = out.splitlines()
    assert first.startswith("GPU ")
    assert "40.0 GB/s on dgx1-v100, mode keep" in first
    assert any("index order" in line and "2.0 times as fast" in line for line in rest)
    assert any("best possible" in line for line in rest)
    assert any("runner-up" in line for line in rest)
    assert any("left free" in line for line in rest)


def test_best_says_when_index_order_is_the_same(linkwise):
    assert "the same set" in linkwise("topology", "best", "dgx-a100", "--count", "8").out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--count", "2", "--free", "0,8"), "--free: '8' is no GPU of this machine."),
        (("--count", "2", "--require", "a"), "--require: 'a' is no GPU of this machine."),
        (("--count", "0"), "Invalid value for '--count'"),
        (("--count", "two"), "Invalid value for '--count'"),
        ((), "Missing option '--count'"),
        (("--count", "2", "--mode", "best"), "Invalid value for '--mode'"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(linkwise, arguments, complaint):
    code, out, err = linkwise("topology", "best", "dgx1-v100", *arguments)

    assert (code, out) == (2, "")
    assert err.startswith(f"linkwise: {complaint}")
    assert err.count("\n") == 1


def test_the_catalogue_is_listed(linkwise):
    code, out, _ = linkwise("topology", "list")
    listed = yaml.safe_load(linkwise("topology", "list", "-o", "yaml").out)["items"]

    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == ["NAME", *NAMES]
    assert [one["name"] for one in listed] == list(NAMES)
    assert all(one["source"] and one["title"] and one["gpus"] for one in listed)
