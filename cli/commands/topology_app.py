"""The commands of `linkwise topology`: what each is called with, and what it then calls."""

from typing import Annotated, Literal

import typer

from cli.commands.conventions import answers
from cli.commands.parameters import Filename, Output
from cli.render.output import Format

topology = typer.Typer(
    help="What links a machine's GPUs, and which of them to take.",
    epilog="Example: linkwise topology best dgx1-v100 --count 4",
    invoke_without_command=True,
)


def _catalogue(incomplete: str) -> list[str]:
    from topology.catalogue import NAMES

    return [name for name in NAMES if name.startswith(incomplete)]


Machine = Annotated[
    str | None,
    typer.Argument(
        metavar="FILE",
        autocompletion=_catalogue,
        help="Text of `nvidia-smi topo -m`, an NCCL topology XML, a catalogue name, or - .",
    ),
]


def _whole(text: str) -> int:
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
    bool, typer.Option("--partial", help="Read what is whole of a text that is cut.")
]


@topology.command("show", epilog="Example: nvidia-smi topo -m | linkwise topology show -")
@answers
def topology_show(
    file: Machine = None,
    filename: Filename = None,
    gpu_model: GPUModel = None,
    partial: Partial = False,
    output: Output = Format.TABLE,
) -> int:
    """Show the links, the class and the bandwidths of a machine."""
    from cli.commands.topology import show
    from cli.files.machine import find_machine
    from cli.files.source import only_file, shown_name

    name = only_file(file, filename)
    return show(shown_name(name), find_machine(name, model=gpu_model, partial=partial), output)


@topology.command("best", epilog="Example: linkwise topology best dgx1-v100 --count 2 --free 0-2,6")
@answers
def topology_best(
    count: Annotated[
        int, typer.Option(parser=_whole, metavar="NUMBER", help="How many GPUs to take.")
    ],
    file: Machine = None,
    filename: Filename = None,
    free: Annotated[
        str | None, typer.Option(metavar="GPUS", help="GPUs to choose from, such as 0-3,6.")
    ] = None,
    require: Annotated[
        str | None, typer.Option(metavar="GPUS", help="GPUs that must be among them.")
    ] = None,
    mode: Annotated[
        Literal["fast", "keep", "compat"],
        typer.Option(
            help="Most bandwidth now; or with a view to later jobs; or as NVIDIA's allocator."
        ),
    ] = "keep",
    multi_node: Annotated[
        bool, typer.Option("--multi-node", help="The job spans nodes: near network cards count.")
    ] = False,
    gpu_model: GPUModel = None,
    partial: Partial = False,
    output: Output = Format.TABLE,
) -> int:
    """Choose the GPUs that talk fastest to each other."""
    from cli.commands.topology import best, gpus_in
    from cli.files.machine import find_machine
    from cli.files.source import only_file, shown_name
    from topology.choice import Ask, Mode

    name = only_file(file, filename)
    machine = find_machine(name, model=gpu_model, partial=partial)
    ask = Ask(
        free=(1 << machine.n) - 1 if free is None else gpus_in(free, machine.n, "--free"),
        k=count,
        required=gpus_in(require or "", machine.n, "--require"),
        mode=Mode(mode),
        multi_node=multi_node,
    )
    return best(shown_name(name), machine, ask, output)


@topology.command("list", epilog="Example: linkwise topology list -o json")
@answers
def topology_list(output: Output = Format.TABLE) -> int:
    """List the machines of the catalogue."""
    from cli.commands.topology import list_machines

    return list_machines(output)
