"""`linkwise topology`: its subcommands and their parameters.

Each subcommand imports what it runs when it runs, so that `--help` does not wait for libraries.
"""

from typing import Annotated, Literal

import typer

from linkwise.cli.output_options import with_output_options
from linkwise.cli.parameters import Context, Filename, Kubeconfig, Output
from linkwise.manifest.value import InputError
from linkwise.views.output.printer import Format, emit

topology = typer.Typer(
    help="Show the GPU links of a machine, and choose its best GPUs.",
    epilog="Example: linkwise topology best dgx1-v100 --count 4",
    invoke_without_command=True,
)


def _complete_name(incomplete: str) -> list[str]:
    from linkwise.topology.catalogue import NAMES

    return [name for name in NAMES if name.startswith(incomplete)]


Machine = Annotated[
    str | None,
    typer.Argument(
        metavar="FILE",
        autocompletion=_complete_name,
        help="Text of `nvidia-smi topo -m`, NCCL topology XML, or a catalogue name; - is a pipe.",
    ),
]


def _parse_count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text[:9]) > 0):
        raise typer.BadParameter(f"{text!r} is no number of GPUs; write 1 or more.")
    return int(text)


GPUModel = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="Product name of the GPUs, or a part of it: V100, A100, H100."
    ),
]
Partial = Annotated[
    bool, typer.Option("--partial", help="Accept a text that is cut off; use its complete lines.")
]


@topology.command("show", epilog="Example: nvidia-smi topo -m | linkwise topology show -")
@with_output_options
def topology_show(
    file: Machine = None,
    filename: Filename = None,
    gpu_model: GPUModel = None,
    partial: Partial = False,
    node: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Show a node of the live cluster instead of FILE."),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="With --node: a cluster file, or a snapshot."),
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: Output = Format.TABLE,
) -> int:
    """Show the GPU links and bandwidths of a machine or node."""
    if node is not None:
        if file or filename or gpu_model or partial:
            raise InputError("--node shows a node as it is. Leave FILE and its options out.")
        from linkwise.cli.topology_node import show_machine_of
        from linkwise.views.live.kubeconfig import Access
        from linkwise.views.live.load import load_cluster

        return show_machine_of(load_cluster(Access(kubeconfig, context), cluster), node, output)
    if cluster or kubeconfig or context:
        raise InputError("no node is named. Name one with --node.")
    from linkwise.topology.table import table_of
    from linkwise.views.files.machine import find_machine
    from linkwise.views.files.source import only_file, shown_name
    from linkwise.views.render import topology_json, topology_text

    name = only_file(file, filename)
    machine = find_machine(name, model=gpu_model, partial=partial)
    bandwidths = table_of(machine)
    if output is Format.TABLE:
        topology_text.show_machine(shown_name(name), machine, bandwidths)
    else:
        emit(topology_json.machine_report(machine, bandwidths), output)
    return 0


@topology.command("best", epilog="Example: linkwise topology best dgx1-v100 --count 2 --free 0-2,6")
@with_output_options
def topology_best(
    count: Annotated[
        int, typer.Option(parser=_parse_count, metavar="NUMBER", help="Number of GPUs.")
    ],
    file: Machine = None,
    filename: Filename = None,
    free: Annotated[
        str | None, typer.Option(metavar="GPUS", help="Free GPUs, such as 0-3,6; default: all.")
    ] = None,
    require: Annotated[
        str | None, typer.Option(metavar="GPUS", help="GPUs that the set must contain.")
    ] = None,
    mode: Annotated[
        Literal["fast", "keep", "compat"],
        typer.Option(
            help="fast: most bandwidth for this job; keep: spare good sets for later jobs; "
            "compat: as NVIDIA's allocator."
        ),
    ] = "keep",
    multi_node: Annotated[
        bool,
        typer.Option("--multi-node", help="The job spans nodes: prefer GPUs near network cards."),
    ] = False,
    gpu_model: GPUModel = None,
    partial: Partial = False,
    output: Output = Format.TABLE,
) -> int:
    """Choose the GPUs with the fastest links."""
    from linkwise.topology.choice import ChoiceMode, ChoiceRequest
    from linkwise.topology.explain import explain
    from linkwise.topology.table import table_of
    from linkwise.views.files.machine import find_machine
    from linkwise.views.files.source import only_file, shown_name
    from linkwise.views.render import topology_json, topology_text

    name = only_file(file, filename)
    machine = find_machine(name, model=gpu_model, partial=partial)
    request = ChoiceRequest(
        free=(1 << machine.n) - 1 if free is None else gpu_mask(free, machine.n, "--free"),
        k=count,
        required=gpu_mask(require or "", machine.n, "--require"),
        mode=ChoiceMode(mode),
        multi_node=multi_node,
    )
    bandwidths = table_of(machine)
    explanation = explain(bandwidths, request)
    if output is Format.TABLE:
        topology_text.show_choice(shown_name(name), machine, explanation, request)
    else:
        emit(topology_json.choice(machine, bandwidths, request, explanation), output)
    return 0 if explanation.chosen else 1


@topology.command("list", epilog="Example: linkwise topology list -o json")
@with_output_options
def topology_list(output: Output = Format.TABLE) -> int:
    """List the machines of the catalogue."""
    from linkwise.topology.catalogue import NAMES, entry
    from linkwise.views.render import topology_json, topology_text

    entries = [entry(name) for name in NAMES]
    if output is Format.TABLE:
        topology_text.show_catalogue(entries)
    else:
        emit(topology_json.machine_list(entries), output)
    return 0


def gpu_mask(text: str, n: int, option: str) -> int:
    """Return the mask of a list of GPUs such as `0-3,6`.

    Raises:
        InputError: An item is no index of one of the machine's n GPUs.
    """
    from linkwise.topology.machine import mask_of

    gpus = set[int]()
    for item in filter(None, (part.strip() for part in text.split(","))):
        first, dash, last = item.partition("-")
        indices = range(_index(first), _index(last if dash else first) + 1)
        if not indices or not 0 <= indices[0] <= indices[-1] < n:
            raise InputError(
                f"{option}: {item!r} is no GPU of this machine. Write some of 0 to {n - 1}, "
                "such as 0-3,6."
            )
        gpus.update(indices)
    return mask_of(gpus)


def _index(text: str) -> int:
    """Return a GPU's index; -1 for a text that is none."""
    digits = text.strip()
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 4 else -1
