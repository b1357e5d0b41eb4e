"""The machines of the catalogue as data.

A group of GPUs is a range (`0-3`) or a list (`0,3`); groups are separated by blanks and stand for
every pair inside each of them. Memory is what the driver reports, in whole GiB.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shape:
    """One machine, written down."""

    name: str
    title: str
    source: str
    model: str
    memory: int
    """Memory of each GPU [GiB]."""
    numa: tuple[int, ...]
    """NUMA node of each GPU."""
    links: tuple[tuple[int, str], ...] = ()
    """Number of NVLinks, and the groups whose pairs have it."""
    levels: tuple[tuple[str, str], ...] = ()
    """PCIe level, and the groups whose pairs meet there; nearest first, every other pair at SYS.
    If it is empty, the level under an NVLink is unknown."""
    switched: bool = False
    nics: tuple[tuple[str, str], ...] = ()
    """Name of a NIC, and its level to each GPU."""


_TWO_SOCKETS = (0, 0, 0, 0, 1, 1, 1, 1)
_CUBE_SIDES = "0,3 0,4 1,2 1,5 2,3 4,7 5,6 6,7"
_CUBE_REST = "0,1 0,2 1,3 2,6 3,7 4,5 4,6 5,7"

SHAPES = (
    Shape(
        name="dgx1-p100",
        title="DGX-1 with 8 × P100 16 GB, hybrid cube mesh",
        source="Links and PCIe levels: go-gpuallocator, common_test.go, NewDGX1PascalNode.",
        model="Tesla P100-SXM2-16GB",
        memory=16,
        numa=_TWO_SOCKETS,
        links=((1, f"{_CUBE_SIDES} {_CUBE_REST}"),),
        levels=(("PIX", "0,2 1,3 4,6 5,7"), ("PHB", "0-3 4-7")),
    ),
    Shape(
        name="dgx1-v100",
        title="DGX-1 with 8 × V100 32 GB, hybrid cube mesh",
        source="Links and NICs: matrix on Microway's page about nvidia-smi; PCIe levels:"
        " go-gpuallocator, common_test.go, NewDGX1VoltaNode.",
        model="Tesla V100-SXM2-32GB",
        memory=32,
        numa=_TWO_SOCKETS,
        links=((2, _CUBE_SIDES), (1, _CUBE_REST)),
        levels=(("PIX", "0,1 2,3 4,5 6,7"), ("PHB", "0-3 4-7")),
        nics=(
            ("mlx5_0", "PIX PIX PHB PHB SYS SYS SYS SYS"),
            ("mlx5_2", "SYS SYS SYS SYS PIX PIX PHB PHB"),
            ("mlx5_1", "PHB PHB PIX PIX SYS SYS SYS SYS"),
            ("mlx5_3", "SYS SYS SYS SYS PHB PHB PIX PIX"),
        ),
    ),
    Shape(
        name="v100x4-square",
        title="4 × V100 16 GB, two links on each side of a square, one on each diagonal",
        source="Modelled; no captured matrix of it is known.",
        model="Tesla V100-SXM2-16GB",
        memory=16,
        numa=(0, 0, 0, 0),
        links=((2, "0,1 1,2 2,3 0,3"), (1, "0,2 1,3")),
    ),
    Shape(
        name="v100x4-p3",
        title="4 × V100 16 GB, half a cube mesh, as AWS p3.8xlarge",
        source="Matrix in a tutorial for four V100; that it is a p3.8xlarge is inferred from its 32"
        " logical CPUs.",
        model="Tesla V100-SXM2-16GB",
        memory=16,
        numa=(0, 0, 0, 0),
        links=((2, "0,3 1,2 2,3"), (1, "0,1 0,2 1,3")),
    ),
    Shape(
        name="dgx2",
        title="DGX-2 with 16 × V100 32 GB on NVSwitch",
        source="Matrix in NVIDIA/nccl-tests issue 78, seen for GPU0 to GPU4; the rest follows from"
        " NVIDIA's DGX-2 user guide: all GPUs on one fabric, eight to a socket.",
        model="Tesla V100-SXM3-32GB",
        memory=32,
        numa=(*_TWO_SOCKETS[:4] * 2, *_TWO_SOCKETS[4:] * 2),
        links=((6, "0-15"),),
        switched=True,
    ),
    Shape(
        name="dgx-a100",
        title="DGX A100 with 8 × A100 40 GB on NVSwitch, ten NICs",
        source="Matrix of a DGX A100 at MD Anderson, as in NVIDIA/nccl issue 1505; 40 GB from its"
        " PCI device id 20b0.",
        model="NVIDIA A100-SXM4-40GB",
        memory=40,
        numa=(3, 3, 1, 1, 7, 7, 5, 5),
        links=((12, "0-7"),),
        switched=True,
        nics=(
            ("NIC0", "PXB PXB SYS SYS SYS SYS SYS SYS"),
            ("NIC1", "PXB PXB SYS SYS SYS SYS SYS SYS"),
            ("NIC2", "SYS SYS PXB PXB SYS SYS SYS SYS"),
            ("NIC3", "SYS SYS PXB PXB SYS SYS SYS SYS"),
            ("NIC4", "SYS SYS SYS SYS PXB PXB SYS SYS"),
            ("NIC5", "SYS SYS SYS SYS PXB PXB SYS SYS"),
            ("NIC6", "SYS SYS SYS SYS SYS SYS PXB PXB"),
            ("NIC7", "SYS SYS SYS SYS SYS SYS PXB PXB"),
            ("NIC8", "SYS SYS SYS SYS SYS SYS SYS SYS"),
            ("NIC9", "SYS SYS SYS SYS SYS SYS SYS SYS"),
        ),
    ),
    Shape(
        name="hgx-a100",
        title="HGX A100 with 8 × A100 80 GB on NVSwitch, four NUMA nodes, three NICs",
        source="Matrix in a report with a FastDeploy environment dump; 80 GB is our choice, as the"
        " boards have 40 or 80.",
        model="NVIDIA A100-SXM4-80GB",
        memory=80,
        numa=(0, 0, 1, 1, 2, 2, 3, 3),
        links=((12, "0-7"),),
        switched=True,
        nics=(
            ("NIC0", "PXB PXB SYS SYS SYS SYS SYS SYS"),
            ("NIC1", "SYS SYS NODE NODE SYS SYS SYS SYS"),
            ("NIC2", "SYS SYS PXB PXB SYS SYS SYS SYS"),
        ),
    ),
    Shape(
        name="dgx-h100",
        title="DGX H100 with 8 × H100 80 GB on NVSwitch, a NIC to each GPU",
        source="Matrix in the record of a Talos Linux demonstration on a DGX H100.",
        model="NVIDIA H100 80GB HBM3",
        memory=80,
        numa=_TWO_SOCKETS,
        links=((18, "0-7"),),
        switched=True,
        nics=(
            ("NIC0", "PXB NODE NODE NODE SYS SYS SYS SYS"),
            ("NIC1", "NODE NODE NODE NODE SYS SYS SYS SYS"),
            ("NIC2", "NODE NODE NODE NODE SYS SYS SYS SYS"),
            ("NIC3", "NODE PXB NODE NODE SYS SYS SYS SYS"),
            ("NIC4", "NODE NODE PXB NODE SYS SYS SYS SYS"),
            ("NIC5", "NODE NODE NODE PXB SYS SYS SYS SYS"),
            ("NIC6", "SYS SYS SYS SYS PXB NODE NODE NODE"),
            ("NIC7", "SYS SYS SYS SYS NODE NODE NODE NODE"),
            ("NIC8", "SYS SYS SYS SYS NODE NODE NODE NODE"),
            ("NIC9", "SYS SYS SYS SYS NODE PXB NODE NODE"),
            ("NIC10", "SYS SYS SYS SYS NODE NODE PXB NODE"),
            ("NIC11", "SYS SYS SYS SYS NODE NODE NODE PXB"),
        ),
    ),
    Shape(
        name="hgx-h200",
        title="HGX H200 with 8 × H200 on NVSwitch, a NIC to each GPU",
        source="Matrix in the record of an H200 server with two EPYC 9534; its driver reports"
        " 143,771 MiB a GPU.",
        model="NVIDIA H200",
        memory=140,
        numa=_TWO_SOCKETS,
        links=((18, "0-7"),),
        switched=True,
        nics=(
            ("NIC0", "NODE NODE PIX NODE SYS SYS SYS SYS"),
            ("NIC1", "NODE PIX NODE NODE SYS SYS SYS SYS"),
            ("NIC2", "SYS SYS SYS SYS NODE NODE NODE PIX"),
            ("NIC3", "NODE NODE NODE PIX SYS SYS SYS SYS"),
            ("NIC4", "PIX NODE NODE NODE SYS SYS SYS SYS"),
            ("NIC5", "SYS SYS SYS SYS NODE NODE PIX NODE"),
            ("NIC6", "SYS SYS SYS SYS PIX NODE NODE NODE"),
            ("NIC7", "SYS SYS SYS SYS NODE PIX NODE NODE"),
        ),
    ),
    Shape(
        name="b200",
        title="8 × B200 on NVSwitch",
        source="Matrix in vllm-project/vllm issue 31594, seen for GPU0 to GPU4; the second NUMA"
        " node is inferred from the NICs of GPU4. The driver reports 183,359 MiB a GPU.",
        model="NVIDIA B200",
        memory=179,
        numa=_TWO_SOCKETS,
        links=((18, "0-7"),),
        switched=True,
    ),
    Shape(
        name="gb200-tray",
        title="GB200 compute tray: 4 GPUs of an NVL72 rack on NVSwitch",
        source="Matrix in sgl-project/sglang issue 11208, seen for GPU0 to GPU2; GPU3 inferred. The"
        " driver reports 189,471 MiB a GPU.",
        model="NVIDIA GB200",
        memory=185,
        numa=(0, 0, 1, 1),
        links=((18, "0-3"),),
        switched=True,
    ),
    Shape(
        name="gh200x4",
        title="4 × GH200 96 GB, six links between each pair",
        source="JUPITER Booster node, page of the Jülich Supercomputing Centre: 150 GB/s per"
        " direction between each pair, one CPU to each GPU.",
        model="NVIDIA GH200 120GB",
        memory=96,
        numa=(0, 1, 2, 3),
        links=((6, "0-3"),),
    ),
    Shape(
        name="a100x4-mesh",
        title="4 × A100 40 GB, four links between each pair, as in Polaris",
        source="Matrix in the Polaris guide of the Argonne Leadership Computing Facility.",
        model="NVIDIA A100-SXM4-40GB",
        memory=40,
        numa=(3, 2, 1, 0),
        links=((4, "0-3"),),
        nics=(("mlx5_0", "SYS SYS SYS PHB"), ("mlx5_1", "SYS PHB SYS SYS")),
    ),
    Shape(
        name="a100x8-bridges",
        title="8 × A100 PCIe 80 GB in four bridged pairs, two of them crossed",
        source="Matrix in NVIDIA/k8s-device-plugin issue 546; without the memory.",
        model="NVIDIA A100 80GB PCIe",
        memory=80,
        numa=_TWO_SOCKETS,
        links=((12, "0,2 1,3 4,5 6,7"),),
    ),
    Shape(
        name="l4x8",
        title="8 × L4 on two sockets, PCIe only",
        source="Matrix in the guide of a Whisper fine-tuning project; NVIDIA's L4 data sheet has 24"
        " GB, of which the driver reports 23,034 MiB.",
        model="NVIDIA L4",
        memory=22,
        numa=_TWO_SOCKETS,
        levels=(("PHB", "0-3 4-7"),),
    ),
    Shape(
        name="t4x4",
        title="4 × T4 on one socket, PCIe only",
        source="Modelled, every pair at the host bridge; 15,360 MiB a GPU as the driver and ACK's"
        " pages about GPU sharing report.",
        model="Tesla T4",
        memory=15,
        numa=(0, 0, 0, 0),
        levels=(("PHB", "0-3"),),
    ),
    Shape(
        name="rtx4090x8",
        title="8 × RTX 4090 on two sockets, every pair at SYS",
        source="Matrix in NVIDIA/go-gpuallocator issue 17.",
        model="NVIDIA GeForce RTX 4090",
        memory=24,
        numa=_TWO_SOCKETS,
        nics=(
            ("NIC0", "SYS SYS SYS SYS SYS SYS PHB SYS"),
            ("NIC1", "SYS SYS SYS SYS SYS SYS PHB SYS"),
        ),
    ),
    Shape(
        name="rtx8000x4",
        title="4 × Quadro RTX 8000 in two bridged pairs across the sockets",
        source="Links and PCIe levels: go-gpuallocator, common_test.go, New4xRTX8000Node; NVIDIA's"
        " Quadro RTX 8000 data sheet has 48 GB.",
        model="Quadro RTX 8000",
        memory=48,
        numa=(0, 0, 1, 1),
        links=((2, "0,3 1,2"),),
        levels=(("NODE", "0,1 2,3"),),
    ),
)
