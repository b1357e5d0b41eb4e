from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import numa_of
from support.strategies import machines

from linkwise.topology.constants import Constants
from linkwise.topology.machine import MAX_TEXT, NIC, Level, Machine, TopologyError
from linkwise.topology.matrix import read_matrix

SQUARE = """\
        GPU0    GPU1    GPU2    GPU3    NIC0    CPU Affinity    NUMA Affinity   GPU NUMA ID
GPU0     X      NV2     SYS     PIX     SYS     0-23            0               N/A
GPU1    NV2      X      PHB     SYS     SYS     0-23            0               N/A
GPU2    SYS     PHB      X      NV4     PXB     24-47           1               N/A
GPU3    PIX     SYS     NV4      X      PIX     24-47           1               N/A
NIC0    SYS     SYS     PXB     PIX      X
"""
HEADER = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
PLAIN = "  GPU0 GPU1\nGPU0 X NV2\nGPU1 NV2 X\n"


def levels_of(machine: Machine) -> list[list[str]]:
    return [[level.name for level in row] for row in machine.levels]


def test_a_matrix_gives_links_levels_numa_nodes_and_nics() -> None:
    machine = read_matrix(SQUARE)

    assert machine.links == ((0, 2, 0, 0), (2, 0, 0, 0), (0, 0, 0, 4), (0, 0, 4, 0))
    assert levels_of(machine) == [
        ["UNKNOWN", "UNKNOWN", "SYS", "PIX"],
        ["UNKNOWN", "UNKNOWN", "PHB", "SYS"],
        ["SYS", "PHB", "UNKNOWN", "UNKNOWN"],
        ["PIX", "SYS", "UNKNOWN", "UNKNOWN"],
    ]
    assert numa_of(machine) == (0, 0, 1, 1)
    assert machine.nics == (NIC("NIC0", (Level.SYS, Level.SYS, Level.PXB, Level.PIX)),)
    assert machine.constants == Constants()
    assert not machine.switched
    assert machine.warnings == ()


def each_line(change: Callable[[str], str]) -> str:
    return "".join(change(line) + "\n" for line in SQUARE.splitlines())


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(each_line(lambda line: "\t".join(line.split("  "))), id="tabs"),
        pytest.param(each_line(lambda line: " ".join(line.split())), id="collapsed blanks"),
        pytest.param(each_line(lambda line: f"//   {line}"), id="comments of C"),
        pytest.param(each_line(lambda line: f"# {line}"), id="comments of a shell"),
        pytest.param(each_line(lambda line: f"> > {line}"), id="quoted twice"),
        pytest.param(each_line(lambda line: f" * {line}"), id="comment block"),
        pytest.param(SQUARE.replace("\n", "\r\n"), id="lines of Windows"),
        pytest.param(SQUARE.replace(" ", "\xa0"), id="hard blanks"),
        pytest.param("\x1b[4m" + SQUARE.replace("\n", "\x1b[0m\n", 1), id="underlined header"),
        pytest.param("[4m" + SQUARE.replace("\n", "[0m\n", 1), id="underline that lost its escape"),
        pytest.param(SQUARE.replace("GPU3    NIC0  ", "GPU3NIC0"), id="glued header"),
        pytest.param(SQUARE.replace("NIC0  ", "mlx5_0"), id="NIC by device name"),
        pytest.param(SQUARE.replace("X      PHB", "XPHB"), id="glued cells"),
        pytest.param(SQUARE.replace("SYS     0-23", "SYS0-23"), id="cell glued to affinity"),
        pytest.param(SQUARE.replace("SYS", "SOC"), id="words of 2015"),
        pytest.param(SQUARE[: SQUARE.index("NIC0    SYS")], id="no row of the NIC"),
        pytest.param(SQUARE.replace("N/A\n", "N/A  <-- GPU 2 talks to 3\n"), id="remarks"),
        pytest.param("text before\n\n" + SQUARE + "\nLegend:\n\n  X    = Self\n", id="legend"),
        pytest.param(SQUARE.replace("GPU NUMA ID", "GPU NU"), id="header cut at the edge"),
    ],
)
def test_the_same_matrix_is_read_however_it_was_pasted(text: str) -> None:
    expected = read_matrix(SQUARE)

    found = read_matrix(text)

    assert replace(found, nics=()) == replace(expected, nics=())
    assert [nic.levels for nic in found.nics] == [nic.levels for nic in expected.nics]


def test_a_markdown_table_may_have_its_affinity_columns_first() -> None:
    machine = read_matrix("""
| CPU Affinity | NUMA Affinity |        | GPU0 | GPU1 | mlx5_1 |
|--------------|---------------|--------|------|------|--------|
| 24-31,56-63  | 3             | GPU0   | X    | NV4  | SYS    |
| 16-23,48-55  | 1             | GPU1   | NV4  | X    | PHB    |
|              |               | mlx5_1 | SYS  | PHB  | X      |
""")

    assert machine.links == ((0, 4), (4, 0))
    assert numa_of(machine) == (3, 1)
    assert machine.nics == (NIC("mlx5_1", (Level.SYS, Level.PHB)),)


def test_nic_columns_may_stand_in_any_order() -> None:
    machine = read_matrix("  GPU0 mlx5_2 NIC1 mlx5_bond_0 bnxt_re0\nGPU0 X PIX PXB NODE SYS\n")

    assert [(nic.name, nic.levels[0].name) for nic in machine.nics] == [
        ("mlx5_2", "PIX"),
        ("NIC1", "PXB"),
        ("mlx5_bond_0", "NODE"),
        ("bnxt_re0", "SYS"),
    ]


def test_left_out_columns_at_the_right_are_no_loss() -> None:
    assert read_matrix("  GPU0 GPU1 ...\nGPU0 X PIX ...\nGPU1 PIX X ...\n").nics == ()


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        pytest.param(("0-9\t0\t\tN/A", "0-9\t1\t\tN/A"), (0, 1), id="double tab before the last"),
        pytest.param(("\t0\t\tN/A", "\t1\t\tN/A"), (0, 1), id="empty CPU affinity"),
        pytest.param(("0-9\t0,3-9\t2", "9\t1,19-25\t9"), (0, 1), id="lists"),
        pytest.param(("0-9\t0,3-9\t2", "9\t0,3-9\t9"), (0, 0), id="equal lists"),
        pytest.param(("0-9\tN/A\t\tN/A", "10-19\tN/A\t\tN/A"), (0, 1), id="N/A: by CPU affinity"),
        pytest.param(("0-9\tN/A", "0-9\tN/A"), (0, 0), id="N/A: equal CPU affinity"),
        pytest.param(("\t\t\tN/A", "\t\t\tN/A"), (0, 0), id="neither: one node"),
        pytest.param(("0-9  7  N/A", "0-9  5  N/A"), (7, 5), id="blanks"),
        pytest.param(("0-9", "10-19"), (0, 1), id="blanks, CPU affinity only"),
        pytest.param(("N/A", "N/A"), (0, 0), id="blanks, last column only"),
        pytest.param(("2", "10"), (0, 0), id="blanks, last column only, a number"),
        pytest.param(("0-45,92-1370", "46-91,138-1831"), (0, 1), id="glued affinities"),
    ],
)
def test_numa_nodes_come_from_the_column_else_from_equal_cpu_affinity_else_all_is_one(
    rows: tuple[str, str], expected: tuple[int, ...]
) -> None:
    blank = "\t" if "\t" in rows[0] else "  "
    cells = ("GPU0", " X ", "PIX"), ("GPU1", "PIX", " X ")
    body = [blank.join((*row, tail)) for row, tail in zip(cells, rows, strict=True)]

    assert numa_of(read_matrix(HEADER + "\n".join(body))) == expected


def test_affinity_without_a_title_is_read_by_its_place() -> None:
    text = "  GPU0 GPU1\nGPU0 X PIX 0-9 3 N/A\nGPU1 PIX X 10-19 5 N/A\n"

    assert numa_of(read_matrix(text)) == (3, 5)


def test_gpu_of_unknown_numa_node_is_separate_with_a_warning() -> None:
    machine = read_matrix(f"{HEADER}GPU0\tX\tPIX\t0-9\t0\nGPU1\tPIX\tX\n")

    assert numa_of(machine) == (0, -1)
    assert "NUMA node of GPU1" in machine.warnings[0]


def a_mesh(n: int, word: str) -> str:
    names = [f"GPU{i}" for i in range(n)]
    rows = (
        " ".join((name, *("X" if i == j else word for j in range(n))))
        for i, name in enumerate(names)
    )
    return "\n".join((" ".join(names), *rows))


@pytest.mark.parametrize(
    ("n", "word", "model", "switched"),
    [
        pytest.param(4, "NV4", None, False, id="4 x A100: 12 links"),
        pytest.param(4, "NV6", None, False, id="4 x GH200: 18 links"),
        pytest.param(16, "NV6", None, True, id="DGX-2"),
        pytest.param(8, "NV12", None, True, id="HGX A100"),
        pytest.param(4, "NV18", None, True, id="GB200 tray"),
        pytest.param(4, "NV6", "A100", True, id="more than an A100 has"),
        pytest.param(4, "NV4", "NVIDIA A100-SXM4-40GB", False, id="as many as an A100 has"),
        pytest.param(4, "NV2", "V100", False, id="as many as a V100 has"),
        pytest.param(4, "NV2", "P100", True, id="more than a P100 has"),
        pytest.param(2, "NV18", "H100", False, id="as many as an H100 has"),
        pytest.param(8, "SYS", None, False, id="no NVLink"),
    ],
)
def test_more_links_in_a_row_than_a_gpu_has_mean_an_nvswitch(
    n: int, word: str, model: str | None, switched: bool
) -> None:
    assert read_matrix(a_mesh(n, word), model=model).switched is switched


def test_the_model_sets_the_speeds_of_nvlinks_and_pcie() -> None:
    machine = read_matrix(PLAIN, model="H100")

    assert machine.constants == Constants(nvlink=20.6, pcie=48.0)
    assert machine.model == "H100"


def test_an_unknown_model_is_refused() -> None:
    with pytest.raises(TopologyError, match="unknown GPU model 'Voodoo2'"):
        read_matrix(PLAIN, model="Voodoo2")


@pytest.mark.parametrize(
    ("there", "back", "links", "level", "words"),
    [
        pytest.param("NV2", "NV1", 0, Level.UNKNOWN, "NV2 one way and NV1", id="two counts"),
        pytest.param("NV2", "SYS", 0, Level.SYS, "NV2 one way and SYS", id="one has no NVLink"),
        pytest.param("PIX", "PHB", 0, Level.PHB, "counted as PHB", id="the worse level"),
        pytest.param("SYS", "NODE", 0, Level.SYS, "counted as SYS", id="the worse level, first"),
    ],
)
def test_what_the_two_directions_do_not_agree_on_counts_less_with_a_warning(
    there: str, back: str, links: int, level: Level, words: str
) -> None:
    machine = read_matrix(f"  GPU0 GPU1\nGPU0 X {there}\nGPU1 {back} X\n")

    assert machine.links[0][1] == links
    assert machine.levels[0][1] is level
    assert words in machine.warnings[0]


def test_later_pcie_matrix_has_the_levels_under_nvlinks_only() -> None:
    first = "  GPU0 GPU1 GPU2\nGPU0 X NV2 PHB\nGPU1 NV2 X SYS\nGPU2 PHB SYS X\n"
    later = "\n  GPU0 GPU1 GPU2\nGPU0 X PIX PXB\nGPU1 PIX X PXB\nGPU2 PXB PXB X\n"

    machine = read_matrix(first + later)

    assert machine.links[0] == (0, 2, 0)
    assert machine.levels[0] == (Level.UNKNOWN, Level.PIX, Level.PHB)
    assert machine.warnings == ()


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["access last", "access first"])
def test_pairs_without_peer_access_go_through_host_memory(order: Sequence[int]) -> None:
    first = "  GPU0 GPU1 GPU2\nGPU0 X NV2 PIX\nGPU1 NV2 X PIX\nGPU2 PIX PIX X\n"
    levels = "  GPU0 GPU1 GPU2\nGPU0 X PIX PIX\nGPU1 PIX X PIX\nGPU2 PIX PIX X\n"
    access = " \tGPU0\tGPU1\tGPU2\t\n GPU0\tX\tGNS\tOK\t\n GPU1\tGNS\tX\tNS\n GPU2\tOK\tNS\tX\n"
    more = (levels, access)

    machine = read_matrix(first + more[order[0]] + more[order[1]])

    assert machine.links[0][1] == 0
    assert machine.levels[0] == (Level.UNKNOWN, Level.PHB, Level.PIX)
    assert machine.levels[1][2] is Level.PHB
    assert machine.warnings == ("no peer access between GPU0-GPU1, GPU1-GPU2: through host memory",)


def test_a_matrix_in_which_all_peers_have_access_changes_nothing() -> None:
    access = "  GPU0 GPU1\nGPU0 X OK\nGPU1 OK X\n"

    assert read_matrix(PLAIN + access) == read_matrix(PLAIN)


@pytest.mark.parametrize(
    ("later", "why"),
    [
        pytest.param(PLAIN, "the first one is the machine", id="links again"),
        pytest.param("  GPU0\nGPU0 X\n", "it is about other GPUs", id="fewer GPUs"),
        pytest.param("  GPU0 GPU1\nGPU0 X PIX\n", "rows missing: GPU1", id="not whole"),
    ],
)
def test_any_other_matrix_is_ignored_with_a_warning(later: str, why: str) -> None:
    machine = read_matrix(PLAIN + later)

    assert machine.links == ((0, 2), (2, 0))
    assert len(machine.warnings) == 1
    assert machine.warnings[0].startswith("ignored the matrix in line 4: ")
    assert why in machine.warnings[0]


CUT = """\
        GPU0    GPU1    GPU2    GPU3
GPU0     X      NV18    NV18    NV18
GPU1    NV18     X      NV
GPU2    NV18    NV18     X      NV18
"""


def test_partial_matrix_is_refused_with_the_missing_part() -> None:
    with pytest.raises(TopologyError) as caught:
        read_matrix(CUT)

    assert "row GPU1 has no cell for GPU2 to GPU3; rows missing: GPU3" in str(caught.value)
    assert "read GPU0, GPU2 alone with --partial" in str(caught.value)


def test_partial_reads_the_gpus_whose_rows_are_whole_and_says_so() -> None:
    machine = read_matrix(CUT, partial=True)

    assert machine.links == ((0, 18), (18, 0))
    assert machine.warnings == (
        "partial: row GPU1 has no cell for GPU2 to GPU3; rows missing: GPU3; only GPU0, GPU2 of 4"
        " GPUs are read, numbered from 0",
    )


def test_partial_recognises_an_nvswitch_by_omitted_gpus() -> None:
    assert read_matrix(CUT, partial=True).switched


def test_partial_leaves_out_gpus_whose_column_was_cut() -> None:
    text = "  GPU0 GPU1 GP\nGPU0 X PIX\nGPU1 PIX X\nGPU2 PHB PHB\n"

    assert read_matrix(text, partial=True).n == 2
    with pytest.raises(TopologyError, match="columns missing: GPU2"):
        read_matrix(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("", "no GPU matrix found", id="empty"),
        pytest.param("hello GPU0\n", "no GPU matrix found", id="prose"),
        pytest.param(
            "  GPU0 GPU1\n", "line 1 names the columns GPU0 to GPU1, but no row", id="head"
        ),
        pytest.param(
            "GPU0 X PIX\nGPU1 PIX X\n", "header line above the GPU row in line 1", id="rows"
        ),
        pytest.param("  GPU0 GPU1\nGPU0 0 XGMI\nGPU1 XGMI 0\n", "AMD's rocm-smi", id="AMD"),
        pytest.param("  GPU0 GPU2\nGPU0 X PIX\n", "columns GPU0, GPU2; expected GPU0 to", id="gap"),
        pytest.param(
            "  GPU0 GPU0\nGPU0 X PIX\n", "columns GPU0, GPU0; expected", id="column twice"
        ),
        pytest.param("  GPU0 ... GPU7\nGPU0 X ... PIX\n", "columns GPU0, GPU7", id="elided GPUs"),
        pytest.param(PLAIN + "GPU1 NV2 X\n", "two rows of one GPU", id="row twice"),
        pytest.param(
            "  GPU0 GPU1\nGPU0 PIX X\nGPU1 PIX X\n", "PIX under GPU0: its cells", id="shifted"
        ),
        pytest.param("  GPU0 GPU1\nGPU0 X X\nGPU1 X X\n", "X under GPU1: its cells", id="all X"),
        pytest.param("  GPU0\nGPU0 X PIX\n", "more cells than the header", id="too many cells"),
        pytest.param(
            "  GPU0 NIC0\nGPU0 X ...\n", "row GPU0 has no cell for NIC0", id="elided cell"
        ),
        pytest.param("GPU0 GPU1\nGPU0 X OK\nGPU1 OK X\n", "topo -p2p", id="only peer access"),
        pytest.param("GPU0 GPU1\nGPU0 X OK\nGPU1 PIX X\n", "mixes links and peer", id="mixed"),
        pytest.param(a_mesh(17, "SYS"), "names 17 GPUs; a machine has at most 16", id="too many"),
        pytest.param("x" * (MAX_TEXT + 1), "at most 1,048,576 are read", id="too long"),
        pytest.param(
            "  GPU0 GPU1\nGPU0 X PIX 0-9 0 N/A GPU1 PIX\nX 0-9 0 N/A\n",
            "re-wrapped",
            id="re-wrapped",
        ),
    ],
)
@pytest.mark.parametrize("partial", [False, True], ids=["whole", "partial"])
def test_text_that_is_not_a_machine_is_refused_with_its_problem(
    text: str, words: str, partial: bool
) -> None:
    with pytest.raises(TopologyError) as caught:
        read_matrix(text, partial=partial)

    assert words in str(caught.value)


def test_digits_glued_to_a_count_of_links_are_not_guessed_apart() -> None:
    with pytest.raises(TopologyError, match="row GPU0 has no cell for GPU1"):
        read_matrix("  GPU0 GPU1\nGPU0 X NV412-15\nGPU1 NV4 X 12-15\n")


def printed(machine: Machine, blank: str) -> str:
    """Print a machine as `nvidia-smi topo -m` does, without the levels under NVLinks."""

    def word(i: int, j: int) -> str:
        if i == j:
            return " X "
        return f"NV{count}" if (count := machine.links[i][j]) else machine.levels[i][j].name

    names = [f"GPU{i}" for i in range(machine.n)]
    lines = [["", *names, *(nic.name for nic in machine.nics), "CPU Affinity", "NUMA Affinity"]]
    for i, name in enumerate(names):
        near = [nic.levels[i].name for nic in machine.nics]
        cells = [word(i, j) for j in range(machine.n)]
        lines.append(
            [name, *cells, *near, f"{8 * machine.gpus[i].numa}-63", str(machine.gpus[i].numa)]
        )
    return "\n".join(blank.join(line) for line in lines)


def as_printed(machine: Machine) -> Machine:
    """Return the machine without what a matrix does not contain."""
    n = machine.n
    printed = {
        (i, j): (
            Level.UNKNOWN if i == j or machine.links[i][j] else machine.levels[i][j] or Level.SYS
        )
        for i in range(n)
        for j in range(n)
    }
    square = tuple(tuple(printed[i, j] for j in range(n)) for i in range(n))
    return replace(machine, levels=square, constants=Constants())


@given(machines().map(as_printed), st.sampled_from(("\t", "    ", " ")))
def test_a_printed_machine_is_read_as_it_was(machine: Machine, blank: str) -> None:
    assert replace(read_matrix(printed(machine, blank)), switched=False) == machine


WORDS = st.sampled_from(
    (
        *("GPU0", "GPU1", "GPU2", "GPU99", "NIC0", "mlx5_0", "NV1", "NV99", "SYS", "PIX", "X"),
        *("OK", "NS", "...", "N/A", "0-9", "0", "CPU", "NUMA", "Affinity", "|", "//", " ", "\n"),
    )
)


@given(
    st.text()
    | st.lists(WORDS, max_size=40).map(" ".join)
    | st.lists(WORDS, max_size=40).map("\t".join),
    st.booleans(),
)
def test_any_text_gives_a_machine_or_says_why_not(text: str, partial: bool) -> None:
    with suppress(TopologyError):
        assert read_matrix(text, partial=partial).n >= 1


def test_blank_lines_cost_no_more_than_their_number() -> None:
    # A pattern that runs over lines would take minutes.
    text = PLAIN + "\n" * 200_000 + " " * 200_000

    assert read_matrix(text) == read_matrix(PLAIN)
