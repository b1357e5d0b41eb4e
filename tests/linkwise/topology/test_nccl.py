from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import numa_of

from linkwise.topology.constants import Constants
from linkwise.topology.machine import MAX_TEXT, NIC, Level, TopologyError
from linkwise.topology.nccl import read_nccl
from linkwise.topology.read import read_machine

INTEL = 'arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85"'
GPU_CLASS = 'class="0x030200"'


def a_gpu(bus: int, *links: str, dev: str = "", sm: str = "", pci: str = "") -> str:
    extra = "".join(f' {name}="{value}"' for name, value in (("dev", dev), ("sm", sm)) if value)
    inner = f"<gpu{extra}>{''.join(links)}</gpu>" if links or extra else ""
    return f'<pci busid="0000:{bus:02x}:00.0" {GPU_CLASS} {pci}>{inner}</pci>'


def a_link(bus: int, count: int = 1, tclass: str = "0x030200") -> str:
    return f'<nvlink target="0000:{bus:02x}:00.0" count="{count}" tclass="{tclass}"/>'


def a_switch(bus: int, *inside: str) -> str:
    return f'<pci busid="0000:{bus:02x}:00.0" class="0x060400">{"".join(inside)}</pci>'


def a_cpu(numa: int, *inside: str, cpu: str = INTEL) -> str:
    return f'<cpu numaid="{numa}" {cpu}>{"".join(inside)}</cpu>'


def a_system(*cpus: str) -> str:
    return f'<?xml version="1.0"?>\n<system version="1">{"".join(cpus)}</system>'


def test_the_level_of_two_gpus_is_the_part_of_the_tree_that_they_share() -> None:
    machine = read_nccl(
        a_system(
            a_cpu(0, a_switch(1, a_switch(2, a_gpu(3), a_gpu(4)), a_switch(5, a_gpu(6))), a_gpu(7)),
            a_cpu(1, a_gpu(8)),
        )
    )

    assert [level.name for level in machine.levels[0]] == ["UNKNOWN", "PIX", "PXB", "PHB", "SYS"]
    assert numa_of(machine) == (0, 0, 0, 0, 1)
    assert machine.gpus[0].bus_id == "0000:03:00.0"


def test_a_machine_without_numa_has_one_node() -> None:
    assert numa_of(read_nccl(a_system('<cpu numaid="-1">' + a_gpu(1) + "</cpu>"))) == (0,)


def test_direct_nvlinks_are_counted_per_pair() -> None:
    machine = read_nccl(
        a_system(
            a_cpu(0, a_gpu(1, a_link(2, 2), a_link(3)), a_gpu(2, a_link(1), a_link(1))),
            a_cpu(1, a_gpu(3, a_link(1))),
        )
    )

    assert machine.links == ((0, 2, 1), (2, 0, 0), (1, 0, 0))
    assert not machine.switched
    assert machine.warnings == ()


def test_a_bus_id_with_a_long_domain_or_in_capitals_is_the_same_device() -> None:
    link = '<nvlink target="00000000:0A:00.0" count="4" tclass="0x030200"/>'
    machine = read_nccl(a_system(a_cpu(0, a_gpu(9, link), a_gpu(10, a_link(9, 4)))))

    assert machine.links == ((0, 4), (4, 0))


def test_nvlinks_to_switches_are_counted_per_gpu() -> None:
    to_switches = (a_link(0xC1, 6, "0x068000"), a_link(0xC2, 6, "0x068000"))
    machine = read_nccl(
        a_system(a_cpu(0, a_gpu(1, *to_switches), a_gpu(2, *to_switches), a_gpu(3, sm="80")))
    )

    assert machine.switched
    assert machine.links == ((0, 12, 0), (12, 0, 0), (0, 0, 0))


def test_counts_that_differ_both_ways_are_no_links_with_a_warning() -> None:
    machine = read_nccl(a_system(a_cpu(0, a_gpu(1, a_link(2, 2)), a_gpu(2, a_link(1, 1)))))

    assert machine.links == ((0, 0), (0, 0))
    assert "GPU0 and GPU1 are linked by 2 NVLinks one way and 1 the other" in machine.warnings[0]


@pytest.mark.parametrize(
    ("link", "words"),
    [
        pytest.param(a_link(1, 12), "NVLinks from GPUs 0 to themselves", id="itself"),
        pytest.param(a_link(99), "to what is no GPU of the file", id="no such GPU"),
        pytest.param(a_link(99, 3, "0x068001"), "to what is no GPU of the file", id="a CPU"),
    ],
)
def test_nvlinks_that_lead_nowhere_are_not_counted_with_a_warning(link: str, words: str) -> None:
    machine = read_nccl(a_system(a_cpu(0, a_gpu(1, link), a_gpu(2, sm="80"))))

    assert machine.links == ((0, 0), (0, 0))
    assert words in machine.warnings[0]


def test_template_without_gpu_elements_warns_about_missing_nvlinks() -> None:
    warnings = read_nccl(a_system(a_cpu(0, a_gpu(1), a_gpu(2)))).warnings

    assert len(warnings) == 1
    assert "has no data about NVLinks" in warnings[0]


def test_gpus_are_numbered_by_dev_where_all_have_it() -> None:
    machine = read_nccl(a_system(a_cpu(0, a_gpu(1, dev="1")), a_cpu(1, a_gpu(2, dev="0"))))

    assert [gpu.bus_id for gpu in machine.gpus] == ["0000:02:00.0", "0000:01:00.0"]
    assert numa_of(machine) == (1, 0)


def test_gpus_are_numbered_as_they_stand_where_one_has_no_dev() -> None:
    machine = read_nccl(a_system(a_cpu(0, a_gpu(1, dev="1"), a_gpu(2))))

    assert [gpu.bus_id for gpu in machine.gpus] == ["0000:01:00.0", "0000:02:00.0"]


def test_network_cards_are_known_by_their_class_or_their_nic() -> None:
    by_class = '<pci busid="0000:0c:00.0" class="0x020700"/>'
    by_nic = '<pci busid="0000:0d:00.0"><nic><net name="mlx5_3"/></nic></pci>'
    without_pci = '<nic><net name="eth0"/></nic>'
    machine = read_nccl(
        a_system(a_cpu(0, a_switch(1, a_gpu(2), by_class), by_nic), a_cpu(1, a_gpu(3), without_pci))
    )

    assert machine.nics == (
        NIC("0000:0c:00.0", (Level.PIX, Level.SYS)),
        NIC("mlx5_3", (Level.PHB, Level.SYS)),
        NIC("eth0", (Level.SYS, Level.PHB)),
    )


def test_the_display_of_the_server_itself_is_no_gpu() -> None:
    display = '<pci busid="0000:0c:00.0" class="0x030000" vendor="0x1a03"/>'

    assert read_nccl(a_system(a_cpu(0, display, a_gpu(1)))).n == 1


AMD = 'arch="x86_64" vendor="AuthenticAMD" familyid="23" modelid="49"'
ROME_GEN4 = (24.0, 24.0, 16.0)


def intel(model: int) -> str:
    return f'arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="{model}"'


@pytest.mark.parametrize(
    ("cpu", "pci", "expected"),
    [
        pytest.param(intel(79), 'link_speed="8 GT/s"', (12.0, 10.0, 6.0), id="Broadwell"),
        pytest.param(intel(85), 'link_speed="8.0 GT/s PCIe"', (12.0, 10.0, 10.0), id="Skylake"),
        pytest.param(intel(106), 'link_speed="16 GT/s"', (24.0, 20.0, 10.0), id="Ice Lake"),
        pytest.param(intel(143), 'link_speed="32.0 GT/s PCIe"', (48.0, 40.0, 22.0), id="Sapphire"),
        pytest.param(intel(207), 'link_speed="32.0 GT/s PCIe"', (48.0, 40.0, 40.0), id="Emerald"),
        pytest.param(intel(207), 'link_speed="64.0 GT/s PCIe"', (96.0, 80.0, 40.0), id="gen 6"),
        pytest.param('vendor="GenuineIntel"', "", (12.0, 10.0, 6.0), id="Intel, no model"),
        pytest.param(AMD, 'link_speed="16 GT/s" link_width="16"', ROME_GEN4, id="AMD"),
        pytest.param(AMD, 'link_speed="16 GT/s" link_width="0"', ROME_GEN4, id="no width"),
        pytest.param(
            AMD, 'link_speed="16 GT/s" link_width="8"', (12.0, 12.0, 10.0), id="half width"
        ),
        pytest.param(AMD, 'link_speed="" link_width="0"', (12.0, 12.0, 10.0), id="no speed"),
        pytest.param('arch="arm64"', 'link_speed="32 GT/s"', (48.0, 48.0, 6.0), id="ARM"),
        pytest.param('arch="ppc64"', 'link_speed="16 GT/s"', (24.0, 24.0, 20.0), id="Power9"),
        pytest.param("", 'link_speed="32 GT/s"', (48.0, 10.0, 6.0), id="unknown CPU"),
        pytest.param("", 'link_speed="2.5 GT/s"', (3.0, 3.0, 2.5), id="unknown CPU, slow link"),
        pytest.param("", 'link_speed="very fast"', (12.0, 10.0, 6.0), id="unreadable speed"),
    ],
)
def test_speeds_of_the_host_come_from_its_cpu_and_the_link_of_its_gpus(
    cpu: str, pci: str, expected: tuple[float, float, float]
) -> None:
    found = read_nccl(a_system(a_cpu(0, a_gpu(1, pci=pci), cpu=cpu))).constants

    assert (found.pcie, found.bridge, found.socket) == expected


@pytest.mark.parametrize(
    ("sm", "nvlink"),
    [
        ("60", 18.0),
        ("70", 20.0),
        ("80", 20.0),
        ("86", 12.0),
        ("90", 20.6),
        ("100", 40.1),
        ("75", 20.0),
    ],
)
def test_sm_sets_the_speed_of_nvlinks(sm: str, nvlink: float) -> None:
    assert read_nccl(a_system(a_cpu(0, a_gpu(1, sm=sm)))).constants.nvlink == nvlink


def test_the_model_overrules_sm_and_leaves_the_host_alone() -> None:
    machine = read_nccl(a_system(a_cpu(0, a_gpu(1, sm="80"))), model="H100")

    assert machine.constants == Constants(nvlink=20.6, pcie=12.0, bridge=10.0, socket=10.0)
    assert machine.model == "H100"


BOMB = '<!DOCTYPE a [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]><system><cpu>&b;</cpu></system>'
TWO_HOSTS = '<cpu numaid="0" host_hash="0x1"/><cpu numaid="0" host_hash="0x2"/>'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("", "not well-formed XML: no element found", id="empty"),
        pytest.param("<system><cpu></system>", "not well-formed XML: mismatched tag", id="broken"),
        pytest.param("<system>\ud800</system>", "half of one", id="half a character"),
        pytest.param("<graphs/>", "NCCL graph file", id="graphs"),
        pytest.param("<html/>", "expected <system>, found <html>", id="a web page"),
        pytest.param("<system/>", "no GPU in the file: of its 0 PCI devices", id="nothing in it"),
        pytest.param(
            a_system('<cpu><pci busid="0000:16:00.0"/></cpu>'), "1 have no class", id="no class"
        ),
        pytest.param(a_system(TWO_HOSTS), "several hosts", id="two hosts"),
        pytest.param(BOMB, "a DOCTYPE is not read", id="entities"),
        pytest.param("<a>" * 100, "more than 64 levels", id="deep"),
        pytest.param("<" + " " * MAX_TEXT, "at most 1,048,576", id="long"),
        pytest.param(
            a_system(a_cpu(0, a_gpu(1), a_gpu(1))),
            "two GPUs have the bus id 0000:01",
            id="bus id twice",
        ),
        pytest.param(
            a_system(a_cpu(0, a_gpu(1, dev="3"), a_gpu(2, dev="3"))),
            "have the dev 3",
            id="dev twice",
        ),
        pytest.param(
            a_system(a_cpu(0, a_gpu(1, dev="x"))), 'dev="x" is no number', id="dev is no number"
        ),
        pytest.param(
            a_system(a_cpu(0, a_gpu(1, a_link(2, -3)))), 'count="-3" is no number', id="negative"
        ),
        pytest.param(
            a_system(a_cpu(0, *(a_gpu(i) for i in range(17)))), "has 17 GPUs", id="too many"
        ),
    ],
)
def test_file_that_is_not_a_topology_is_refused_with_the_missing_part(
    text: str, words: str
) -> None:
    with pytest.raises(TopologyError) as caught:
        read_nccl(text)

    assert words in str(caught.value)


@pytest.mark.parametrize(
    "before", ["", "\n\n", "\ufeff"], ids=["nothing", "lines", "byte order mark"]
)
def test_xml_is_recognized_by_its_first_character(before: str) -> None:
    assert read_machine(before + "<system><cpu>" + a_gpu(1) + "</cpu></system>").n == 1


def test_matrix_is_distinguished_from_xml() -> None:
    assert read_machine("  GPU0 GPU1\nGPU0 X PIX\n", partial=True).n == 1


PIECES = st.sampled_from(
    (
        *("<system>", "</system>", '<cpu numaid="0">', "<cpu>", "</cpu>", "</pci>", "<gpu/>"),
        *("<gpu sm='80' dev='1'>", "</gpu>", a_gpu(1), a_gpu(2, a_link(1)), a_link(7), "<nic/>"),
        *('<pci class="0x060400">', '<pci class="0x02">', "&x;", "\x00", "text", "<!--", "-->"),
    )
)


@given(
    st.text().map(lambda text: "<" + text)
    | st.lists(PIECES).map("".join)
    | st.lists(PIECES).map(lambda inside: a_system("".join(inside)))
    | st.lists(PIECES).map(lambda inside: a_system(a_cpu(0, *inside)))
)
def test_any_xml_gives_a_machine_or_says_why_not(text: str) -> None:
    with suppress(TopologyError):
        assert read_nccl(text).n >= 1
