from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import numa_of

from linkwise.topology.catalogue import entry
from linkwise.topology.constants import Constants
from linkwise.topology.machine import Level, Machine, TopologyError
from linkwise.topology.read import read_machine

FOLDER = Path(__file__).parents[3] / "../shared/topologies"
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="the captured machines are not here")


NO_CONSTANTS = Constants()


@dataclass(frozen=True, kw_only=True)
class Read:
    """What a file shows."""

    gpus: int
    switched: bool = False
    links: dict[tuple[int, int], int] = field(default_factory=dict)
    levels: dict[tuple[int, int], str] = field(default_factory=dict)
    numa: str
    """Node of each GPU; only equal or not equal counts."""
    nics: int = 0
    constants: Constants = NO_CONSTANTS
    warning: str = ""


@dataclass(frozen=True)
class Refused:
    """What a file lacks, and what it shows when read as partial."""

    words: tuple[str, ...]
    partial: Read | None = None


CUBE = {(0, 1): 1, (0, 3): 2, (0, 4): 2, (3, 7): 1, (0, 7): 0}
PAIRS = {(0, 1): 4, (0, 2): 0, (2, 3): 4, (6, 7): 4}
NO_NVLINK_DATA = "has no data about NVLinks"
NDV4_SPEEDS = Constants(pcie=24.0, bridge=24.0, socket=16.0)

FILES: dict[str, Read | Refused] = {
    "2gpu-nv1-fixture.txt": Read(gpus=2, links={(0, 1): 1}, numa="00"),
    "4gpu-nv4-pairs-nic-pix-pxb.txt": Read(
        gpus=4, links={(0, 1): 4, (2, 3): 4}, levels={(0, 2): "SYS"}, numa="0011", nics=1
    ),
    "4gpu-two-socket-SOC-html.txt": Read(
        gpus=4, levels={(0, 1): "PHB", (0, 2): "SYS"}, numa="0000"
    ),
    "4xa100-nv12-pairs-four-numa.txt": Read(
        gpus=4, links={(0, 1): 12, (1, 2): 0}, numa="0123", nics=1
    ),
    "4xa100-pcie-one-bridge-seen-mlx5.txt": Read(
        gpus=4, links={(0, 1): 12, (2, 3): 0}, levels={(2, 3): "NODE"}, numa="0011", nics=2
    ),
    "4xh100-nv6-mesh-4nic-four-numa.txt": Read(
        gpus=4, links={(0, 1): 6, (2, 3): 6}, numa="3175", nics=4
    ),
    "4xk80-node-all.txt": Read(gpus=4, levels={(0, 3): "NODE"}, numa="0000"),
    "4xrtx8000-DERIVED.txt": Read(
        gpus=4, links={(0, 3): 2, (1, 2): 2}, levels={(0, 1): "NODE", (0, 2): "SYS"}, numa="0000"
    ),
    "4xv100-nv1-pairs-test.txt": Read(gpus=4, links={(0, 1): 1, (1, 2): 0}, numa="0011"),
    "4xv100-p3.8xlarge-shape.txt": Read(gpus=4, links={(0, 1): 1, (0, 3): 2}, numa="0000"),
    "6gpu-pix-phb-soc-test.txt": Read(
        gpus=6, levels={(0, 1): "PIX", (1, 2): "PHB", (3, 4): "SYS"}, numa="000000"
    ),
    "8gpu-nv4-pairs-epyc-node-sys.txt": Read(
        gpus=8, links=PAIRS, levels={(0, 2): "NODE", (0, 4): "SYS"}, numa="00001111", nics=2
    ),
    "8gpu-pix-pxb-asymmetric-partial.txt": Refused(
        ("row GPU6 has no cell for GPU7", "rows missing: GPU7"),
        Read(gpus=6, levels={(0, 1): "PIX", (2, 3): "PXB", (3, 4): "SYS"}, numa="000000"),
    ),
    "8xa100-10nic-litgpt-fixture.txt": Read(
        gpus=8, switched=True, links={(0, 7): 12}, numa="00001111", nics=10
    ),
    "8xa40-nv4-pairs-ellipsis.txt": Read(
        gpus=8, links=PAIRS, levels={(0, 2): "NODE"}, numa="00000000"
    ),
    "8xgpu-node-pix-sys-comment-wrapped.txt": Refused(("line 5", "re-wrapped")),
    "8xgpu-nv8-9nic-interleaved-partial.txt": Refused(
        ("row GPU7 has no cell for GPU4 to NIC8",),
        Read(gpus=7, switched=True, links={(0, 6): 8}, numa="0000111", nics=9),
    ),
    "8xgpu-pix-phb-sys-nic0.txt": Read(
        gpus=8, levels={(0, 1): "PIX", (0, 2): "PHB", (0, 4): "SYS"}, numa="00001111", nics=1
    ),
    "8xl4-phb-sys.txt": Read(gpus=8, levels={(0, 3): "PHB", (3, 4): "SYS"}, numa="00001111"),
    "8xv100-sxm2-collapsed-whitespace.txt": Read(gpus=8, links=CUBE, numa="00001111"),
    "8xv100-sxm2-mlx5-node-pix.txt": Read(gpus=8, links=CUBE, numa="00001111", nics=1),
    "8xv100-sxm2-nic0-numa.txt": Read(gpus=8, links=CUBE, numa="00001111", nics=1),
    "amd-mi-8x-xgmi-rocm-smi.txt": Refused(("AMD", "rocm-smi", "not read")),
    "aws-g5.48xl-topo.nccl.xml": Refused(("no GPU", "9 PCI devices", "9 have no class")),
    "aws-p4d-24xl-topo.nccl.xml": Read(
        gpus=8,
        levels={(0, 1): "PIX", (0, 2): "PHB", (0, 4): "SYS"},
        numa="00001111",
        nics=4,
        constants=Constants(socket=10.0),
        warning=NO_NVLINK_DATA,
    ),
    "aws-p4d.24xlarge-8xa100.txt": Read(gpus=8, switched=True, links={(0, 7): 12}, numa="00001111"),
    "aws-p4de-24xl-topo.nccl.xml": Read(
        gpus=8,
        levels={(0, 1): "PIX", (0, 2): "PHB", (0, 4): "SYS"},
        numa="00001111",
        nics=4,
        constants=Constants(socket=10.0),
        warning=NO_NVLINK_DATA,
    ),
    "azure-ncv4-graph.nccl.xml": Refused(("NCCL graph file", "no machine")),
    "azure-ncv4-topo.nccl.xml": Read(
        gpus=4,
        links={(0, 1): 0},
        levels={(0, 1): "SYS"},
        numa="0123",
        nics=1,
        constants=Constants(bridge=12.0, socket=10.0),
        warning="NVLinks from GPUs 0, 1, 2, 3 to themselves",
    ),
    "azure-ndv2-topo.nccl.xml": Read(
        gpus=8,
        levels={(0, 3): "PHB", (3, 4): "SYS"},
        numa="00001111",
        nics=1,
        constants=Constants(pcie=24.0, bridge=20.0, socket=10.0),
        warning=NO_NVLINK_DATA,
    ),
    "azure-ndv4-topo.nccl.xml": Read(
        gpus=8,
        levels={(0, 1): "PIX", (1, 2): "SYS"},
        numa="00112233",
        nics=8,
        constants=NDV4_SPEEDS,
        warning=NO_NVLINK_DATA,
    ),
    "azure-ndv5-topo.nccl.xml": Read(
        gpus=8,
        levels={(0, 1): "PHB", (3, 4): "SYS"},
        numa="00001111",
        nics=8,
        constants=Constants(pcie=48.0, bridge=40.0, socket=22.0),
        warning=NO_NVLINK_DATA,
    ),
    "b200-8x-13nic-glued-header-partial.txt": Refused(
        ("rows missing: GPU5, GPU6, GPU7",),
        Read(
            gpus=5,
            switched=True,
            links={(0, 4): 18},
            numa="00001",
            nics=13,
            warning="the NUMA node of GPU4 is unknown",
        ),
    ),
    "dgx-a100-8x-10nic.txt": Read(
        gpus=8, switched=True, links={(0, 7): 12}, numa="33117755", nics=10
    ),
    "dgx-h100-8x-12nic.txt": Read(
        gpus=8, switched=True, links={(0, 7): 18}, numa="00001111", nics=12
    ),
    "dgx1-p100-DERIVED.txt": Read(
        gpus=8,
        links={(0, 1): 1, (0, 4): 1, (0, 5): 0},
        levels={(0, 1): "PHB", (0, 2): "PIX", (0, 4): "SYS"},
        numa="00000000",
    ),
    "dgx1-v100-mlx5-tabs.txt": Read(gpus=8, links=CUBE, numa="00001111", nics=4),
    "gb200-4gpu-tray-nv18-partial.txt": Refused(
        ("row GPU3 has no cell for NIC1 to NIC5",),
        Read(gpus=3, switched=True, links={(0, 2): 18}, numa="001", nics=6),
    ),
    "gh200-1x-4nic.txt": Read(gpus=1, numa="0", nics=4),
    "h100-8x-18nic-partial.txt": Refused(
        ("rows missing: GPU4, GPU5, GPU6, GPU7",),
        Read(gpus=4, switched=True, links={(0, 3): 18}, numa="0000", nics=18),
    ),
    "h200-nvl-4x-nv6-left-aligned-arrows.txt": Read(gpus=4, links={(2, 3): 6}, numa="0000"),
    "hgx-a100-8x-3nic-four-numa-xeon.txt": Read(
        gpus=8, switched=True, links={(0, 7): 12}, numa="00112233", nics=3
    ),
    "hgx-a100-8x-6nic-partial.txt": Refused(
        ("row GPU7 has no cell for NIC5",),
        Read(gpus=7, switched=True, links={(0, 6): 12}, numa="3311775", nics=6),
    ),
    "hgx-b300-8x-9nic-ansi-header.txt": Read(
        gpus=8, switched=True, links={(0, 7): 18}, numa="00001111", nics=9
    ),
    "hgx-h200-8x-8nic-epyc.txt": Read(
        gpus=8, switched=True, links={(0, 7): 18}, numa="00001111", nics=8
    ),
    "polaris-4xa100-nv4-mesh-table.txt": Read(
        gpus=4, links={(0, 1): 4, (2, 3): 4}, numa="3210", nics=2
    ),
}


def text_of(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


def assert_shows(machine: Machine, expected: Read) -> None:
    nodes = [expected.numa.index(node) for node in expected.numa]
    assert machine.n == expected.gpus
    assert machine.switched is expected.switched
    assert {(i, j): machine.links[i][j] for i, j in expected.links} == expected.links
    assert {(i, j): machine.levels[i][j].name for i, j in expected.levels} == expected.levels
    assert [numa_of(machine).index(node) for node in numa_of(machine)] == nodes
    assert len(machine.nics) == expected.nics
    assert machine.constants == expected.constants


def test_every_captured_file_is_in_the_table() -> None:
    assert sorted(FILES) == sorted(path.name for path in FOLDER.iterdir())


@pytest.mark.parametrize("name", [name for name, want in FILES.items() if isinstance(want, Read)])
def test_a_whole_file_shows_its_machine(name: str) -> None:
    expected = FILES[name]
    assert isinstance(expected, Read)

    machine = read_machine(text_of(name))

    assert_shows(machine, expected)
    assert len(machine.warnings) == bool(expected.warning)
    assert expected.warning in "".join(machine.warnings)


REFUSED = {name: want for name, want in FILES.items() if isinstance(want, Refused)}


@pytest.mark.parametrize("name", REFUSED)
def test_partial_file_is_refused_with_the_missing_part(name: str) -> None:
    with pytest.raises(TopologyError) as caught:
        read_machine(text_of(name))

    assert all(words in str(caught.value) for words in REFUSED[name].words)


@pytest.mark.parametrize("name", [name for name, want in REFUSED.items() if want.partial])
def test_a_partial_file_shows_a_smaller_machine_when_asked(name: str) -> None:
    expected = REFUSED[name].partial
    assert expected

    machine = read_machine(text_of(name), partial=True)

    assert_shows(machine, expected)
    assert machine.warnings[0].startswith("partial: ")
    assert expected.warning in machine.warnings[-1]


@pytest.mark.parametrize("name", [name for name, want in REFUSED.items() if not want.partial])
def test_a_file_without_a_whole_row_is_refused_as_partial_too(name: str) -> None:
    with pytest.raises(TopologyError):
        read_machine(text_of(name), partial=True)


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("dgx1-p100", "dgx1-p100-DERIVED.txt"),
        ("v100x4-p3", "4xv100-p3.8xlarge-shape.txt"),
        ("dgx-a100", "dgx-a100-8x-10nic.txt"),
        ("hgx-a100", "hgx-a100-8x-3nic-four-numa-xeon.txt"),
        ("dgx-h100", "dgx-h100-8x-12nic.txt"),
        ("hgx-h200", "hgx-h200-8x-8nic-epyc.txt"),
        ("a100x4-mesh", "polaris-4xa100-nv4-mesh-table.txt"),
        ("l4x8", "8xl4-phb-sys.txt"),
    ],
)
def test_a_machine_of_the_catalogue_is_the_one_that_was_captured(name: str, file: str) -> None:
    captured, machine = read_machine(text_of(file)), entry(name).machine

    assert machine.links == captured.links
    assert machine.levels == captured.levels
    assert machine.nics == captured.nics
    assert machine.switched == captured.switched


@pytest.mark.parametrize("file", ["dgx1-v100-mlx5-tabs.txt", "4xrtx8000-DERIVED.txt"])
def test_the_catalogue_adds_the_levels_that_nvlinks_hide(file: str) -> None:
    captured = read_machine(text_of(file))
    machine = entry("dgx1-v100" if captured.n == 8 else "rtx8000x4").machine

    assert machine.links == captured.links
    assert machine.nics == captured.nics
    assert all(
        captured.levels[i][j] in {Level.UNKNOWN, machine.levels[i][j]}
        for i in range(machine.n)
        for j in range(machine.n)
    )


@st.composite
def damaged_texts(draw: st.DrawFn) -> str:
    """Captured texts with lines deleted, cut, doubled, shuffled inside or overwritten."""
    lines = text_of(draw(st.sampled_from(sorted(FILES)))).splitlines()
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(lines) - 1))
        kind = draw(st.sampled_from(("delete", "cut", "double", "shuffle", "junk", "end")))
        if kind == "delete" and len(lines) > 1:
            del lines[at]
        elif kind == "cut":
            lines[at] = lines[at][: draw(st.integers(0, len(lines[at])))]
        elif kind == "double":
            lines.insert(at, lines[at])
        elif kind == "shuffle":
            lines[at] = "  ".join(draw(st.permutations(lines[at].split())))
        elif kind == "junk":
            lines[at] += draw(st.text(max_size=8))
        else:
            lines = lines[: at + 1]
    return "\n".join(lines)


@given(damaged_texts(), st.booleans())
def test_a_damaged_text_gives_a_machine_or_says_why_not(text: str, partial: bool) -> None:
    with suppress(TopologyError):
        assert read_machine(text, partial=partial).n >= 1


@given(st.sampled_from(sorted(FILES)), st.data())
def test_a_text_cut_anywhere_never_shows_other_links_than_the_whole(
    name: str, data: st.DataObject
) -> None:
    text = text_of(name)
    cut = text[: data.draw(st.integers(0, len(text)))]
    try:
        found = read_machine(cut, partial=True)
        whole = read_machine(text, partial=True)
    except TopologyError:
        return

    # A count cut in its last digit disagrees with the other direction, and is then no link.
    assert all(
        found.links[i][j] in {0, whole.links[i][j]} for i in range(found.n) for j in range(found.n)
    )
