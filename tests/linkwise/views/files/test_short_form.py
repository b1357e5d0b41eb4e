import json

import pytest

from linkwise.cluster.mode import NodeMode
from linkwise.policy.snapshot import PolicySnapshot
from linkwise.views.files.cluster_file import collect_objects
from linkwise.views.files.source import read_objects

HEAD = "apiVersion: linkwise.dev/v1alpha1\nkind: Cluster\nnodes:\n"


@pytest.fixture
def read(write):
    def read_text(*nodes):
        path = str(write("cluster.yaml", HEAD + "".join(f"- {node}\n" for node in nodes)))
        return collect_objects(read_objects(path), path).build(PolicySnapshot())

    return read_text


def test_the_example_of_the_command_line_is_read(read):
    cluster = read(
        "{name: gpu, count: 2, machine: dgx1-v100, mode: topology, cpu: 96, memory: 768Gi}",
        "{name: share-0, machine: t4x4, mode: core_mem, gpuMemory: 15, used: [{gpu: 0, mem: 3}]}",
    )

    gpu, _, share = cluster.nodes
    assert [node.name for node in cluster.nodes] == ["gpu-0", "gpu-1", "share-0"]
    assert (gpu.mode, gpu.cpu, gpu.memory) == (NodeMode.TOPOLOGY, 96_000, 768 << 30)
    assert gpu.machine_known
    assert gpu.labels["kubernetes.io/hostname"] == "gpu-0"
    assert [card.memory for card in share.cards] == [15] * 4
    ledger = cluster.ledger.nodes["share-0"]
    assert ledger.memory_free(0) == 12
    assert ledger.sharing == "memory"


@pytest.mark.parametrize(
    ("mode", "extra", "resources"),
    [
        ("default", "", {"nvidia.com/gpu": 4}),
        ("topology", "", {"aliyun.com/gpu": 4}),
        ("topology", "labels: {linkwise.dev/resource-name: nvidia.com-gpu}", {"nvidia.com/gpu": 4}),
        ("share", "", {"aliyun.com/gpu-mem": 60, "aliyun.com/gpu-count": 4}),
        ("cgpu", "gpuMemory: 15", {"aliyun.com/gpu-mem": 60, "aliyun.com/gpu-count": 4}),
        (
            "core_mem",
            "gpuMemory: 15",
            {
                "aliyun.com/gpu-mem": 60,
                "aliyun.com/gpu-count": 4,
                "aliyun.com/gpu-core.percentage": 400,
            },
        ),
        ("timeslice", "replicas: 3", {"nvidia.com/gpu.shared": 12}),
        ("disabled", "", {}),
    ],
)
def test_a_node_offers_what_its_mode_does(read, mode, extra, resources):
    comma = ", " if extra else ""
    (node,) = read(f"{{name: a, machine: t4x4, mode: {mode}{comma}{extra}}}").nodes

    assert node.mode == mode
    assert node.resources == {"ephemeral-storage": 1 << 50, **resources}


def test_a_node_without_a_machine_has_no_gpu(read):
    (node,) = read("{name: cpu}").nodes

    assert (node.mode, node.cards, node.machine) == (NodeMode.DEFAULT, (), None)


def test_labels_and_taints_are_the_nodes_own(read):
    (node,) = read(
        "{name: a, labels: {rack: r1}, taints: [{key: gpu, value: 'yes', effect: NoSchedule}]}"
    ).nodes

    assert node.labels["rack"] == "r1"
    assert [(taint.key, taint.value, taint.effect) for taint in node.taints] == [
        ("gpu", "yes", "NoSchedule")
    ]


@pytest.mark.parametrize(
    ("used", "free"),
    [
        ("[{gpu: 0}, {gpu: 2}]", 0b1010),
        ("[]", 0b1111),
    ],
)
def test_a_card_that_is_used_whole_is_not_free(read, used, free):
    cluster = read(f"{{name: a, count: 2, machine: t4x4, mode: topology, used: {used}}}")

    assert [ledger.free_mask for ledger in cluster.ledger.nodes.values()] == [free, free]


def test_replicas_that_are_used_are_counted(read):
    cluster = read(
        "{name: a, machine: t4x4, mode: timeslice, replicas: 4, used: [{gpu: 1}, {gpu: 1}]}"
    )

    assert cluster.ledger.nodes["a"].replicas_free(1) == 2


SHARE = (
    "apiVersion: v1\nkind: Pod\nmetadata: {name: p-NUMBER}\n"
    "spec: {containers: [{name: c, resources: {limits: {aliyun.com/gpu-mem: 2}}}]}\n"
)


@pytest.mark.parametrize(
    ("strategy", "label", "nodes"),
    [
        ("binpack", "", ["a-0", "a-0", "a-0"]),
        ("spread", "", ["a-0", "a-1", "a-0"]),
        ("spread", ", labels: {ack.node.gpu.placement: binpack}", ["a-0", "a-0", "a-0"]),
        ("binpack", ", labels: {ack.node.gpu.placement: spread}", ["a-0", "a-1", "a-0"]),
    ],
)
def test_shares_follow_the_policy_on_nodes_without_label(linkwise, write, strategy, label, nodes):
    write("cluster.yaml", f"{HEAD}- {{name: a, count: 2, machine: t4x4, mode: share{label}}}\n")
    write("policy.yaml", f"placement: {{strategy: {strategy}}}\n")
    write("pods.yaml", "---\n".join(SHARE.replace("NUMBER", str(i)) for i in range(3)))
    files = ("pods.yaml", "--cluster", "cluster.yaml", "--policy", "policy.yaml")

    code, out, err = linkwise("simulate", *files, "-o", "json")

    assert (code, err) == (0, "")
    placed = json.loads(out)["pods"]
    assert [pod["node"] for pod in placed] == nodes
    cards = [pod["gpus"] for pod in placed]
    assert (cards[0] == cards[2]) is (nodes[0] == nodes[1])


def test_a_matrix_file_is_found_beside_the_cluster_file(linkwise, write, tmp_path):
    (tmp_path / "site").mkdir()
    write("site/two.txt", "GPU0\tGPU1\nGPU0\tX\tNV2\nGPU1\tNV2\tX\n")
    write("site/cluster.yaml", f"{HEAD}- {{name: a, machine: two.txt, mode: topology}}\n")
    write("pod.yaml", POD)

    code, out, _ = linkwise("check", "pod.yaml", "--cluster", "site/cluster.yaml")

    assert code == 1
    assert "LW111 " in out
    assert "at most 2 on one node" in out


POD = (
    "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n"
    "spec: {containers: [{name: c, resources: {limits: {aliyun.com/gpu: 3}}}]}\n"
)


@pytest.mark.parametrize(
    ("node", "complaint"),
    [
        ("{name: a, cuont: 2}", "nodes[0].cuont: unknown key 'cuont'; write count."),
        ("{machine: t4x4}", "nodes[0].name: name is missing; add it."),
        ("{name: a, count: 0}", "nodes[0].count: must be greater than or equal to 1"),
        ("{name: a, machine: t4x4, mode: topolgy}", "nodes[0].mode: must be 'default', 'topology'"),
        ("{name: a, machine: t4x5}", "t4x5: no such file or directory."),
        ("{name: a, mode: topology}", "a node of mode topology has GPUs; add its machine."),
        ("{name: a, used: [{gpu: 0}]}", "a node of mode default has GPUs; add its machine."),
        (
            "{name: a, machine: t4x4, mode: topology, used: [{gpu: 4}]}",
            "a has no GPU 4; write one below 4.",
        ),
        (
            "{name: a, machine: t4x4, mode: topology, used: [{gpu: 0, mem: 3}]}",
            "a node of mode topology gives out whole GPUs; leave mem out.",
        ),
        (
            "{name: a, machine: t4x4, mode: core_mem, used: [{gpu: 0, core: 20}]}",
            "core cannot be used alone; add mem [GiB].",
        ),
        (
            "{name: a, machine: t4x4, mode: share, used: [{gpu: 0}, {gpu: 1, mem: 2, core: 5}]}",
            "a node of mode share gives out no compute; leave core out.",
        ),
        ("{name: A_b!}", "a node cannot be named 'A_b!'; write lower-case letters, digits, - and"),
        ("{name: -a}", "a node cannot be named '-a'; write"),
        (
            "{name: a, machine: t4x4, mode: cgpu, used: [{gpu: 0, mem: 1, core: 5}]}",
            "a node of mode cgpu gives out no compute; leave core out.",
        ),
        (f"{{name: {'a' * 252}, count: 11}}", f"a node cannot be named '{'a' * 252}-0'; write"),
        (
            "{name: a, machine: t4x4, mode: topology, used: [{gpu: 0}, {gpu: 0}]}",
            "GPU0 of a is taken already.",
        ),
        (
            "{name: a, machine: t4x4, mode: timeslice}",
            "replicas is missing: how many pods may share one GPU; add it.",
        ),
        (
            "{name: a, machine: two.txt, mode: share}",
            "gpuMemory is missing: the memory of the cards is not known; add it [GiB].",
        ),
        ("{name: a, cpu: many}", "node a: status.allocatable[cpu]: 'many' is no quantity"),
    ],
)
def test_mistake_is_an_error_with_line(linkwise, write, node, complaint):
    write("two.txt", "GPU0\tGPU1\nGPU0\tX\tNV2\nGPU1\tNV2\tX\n")
    write("cluster.yaml", f"{HEAD}- {node}\n")
    write("pod.yaml", POD)

    code, out, err = linkwise("check", "pod.yaml", "--cluster", "cluster.yaml")

    assert (code, out) == (2, "")
    assert err.startswith(f"linkwise: cluster.yaml:4: {complaint}")
    assert err.count("\n") == 1


def test_two_nodes_of_one_name_are_refused(linkwise, write):
    write("cluster.yaml", f"{HEAD}- {{name: a-0}}\n- {{name: a, count: 1}}\n")
    write("pod.yaml", POD)

    err = linkwise("check", "pod.yaml", "--cluster", "cluster.yaml").err

    assert err == "linkwise: cluster.yaml:5: node a-0 is already defined at cluster.yaml:4.\n"
