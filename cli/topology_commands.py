"""The commands of `linkwise topology`: what each is called with, and what it then calls."""

from typing import Annotated, Literal

import typer

from cli.output import Format
from cli.parameters import Output

topology = typer.Typer(
    help="What links a machine's GPUs, and which of them to take.",
    epilog="Example: linkwise topology best dgx1-v100 --count 4",
    invoke_without_command=True,
)


def _catalogue(incomplete: str) -> list[str]:
    from topology.catalogue import NAMES

    return [name for name in NAMES if name.startswith(incomplete)]


Machine = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        autocompletion=_catalogue,
        help="Text of `nvidia-smi topo -m`, an NCCL topology XML, a catalogue name, or - .",
    ),
]
GPUModel = Annotated[
    str | None, typer.Option(help="Product name of the GPUs, or a part of it: V100, A100, H100.")
]
Partial = Annotated[
    bool, typer.Option("--partial", help="Read what is whole of a text that is cut.")
]


@topology.command("show", epilog="Example: nvidia-smi topo -m | linkwise topology show -")
def topology_show(
    file: Machine,
    gpu_model: GPUModel = None,
    partial: Partial = False,
    output: Output = Format.TABLE,
) -> int:
    """Show the links, the class and the bandwidths of a machine."""
    from cli.machine import find_machine
    from cli.source import shown_name
    from cli.topology import show

    return show(shown_name(file), find_machine(file, model=gpu_model, partial=partial), output)


@topology.command("best", epilog="Example: linkwise topology best dgx1-v100 --count 2 --free 0,2,3")
def topology_best(
    file: Machine,
    count: Annotated[int, typer.Option(min=1, help="How many GPUs to take.")],
    free: Annotated[
        str | None, typer.Option(metavar="GPUS", help="GPUs to choose from, such as 0,2,3.")
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
    from cli.machine import find_machine
    from cli.source import shown_name
    from cli.topology import best, gpus_in
    from topology.choice import Ask, Mode

    machine = find_machine(file, model=gpu_model, partial=partial)
    ask = Ask(
        free=(1 << machine.n) - 1 if free is None else gpus_in(free, machine.n, "--free"),
        k=count,
        required=gpus_in(require or "", machine.n, "--require"),
        mode=Mode(mode),
        multi_node=multi_node,
    )
    return best(shown_name(file), machine, ask, output)


@topology.command("list", epilog="Example: linkwise topology list -o json")
def topology_list(output: Output = Format.TABLE) -> int:
    """List the machines of the catalogue."""
    from cli.topology import list_machines

    return list_machines(output)
