"""The root command `linkwise`, the list of its commands, and `replay` and `schema`.

Each command imports what it runs when it runs, so that `--help` does not wait for libraries.
"""

from typing import Annotated, Literal

import typer

from linkwise.cli.certs import certs
from linkwise.cli.cluster_commands import dashboard, explain, inspect, snapshot
from linkwise.cli.completion import completion
from linkwise.cli.manifest_commands import check, simulate
from linkwise.cli.output_options import with_output_options
from linkwise.cli.policy import policy
from linkwise.cli.topology import topology

app = typer.Typer(
    name="linkwise",
    help="Check manifests, simulate and explain GPU placement, and inspect GPUs of a cluster.",
    epilog="Example: linkwise check job.yaml --cluster cluster.yaml",
    invoke_without_command=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    # Help is as wide as the terminal.
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 1000},
)
app.add_typer(topology, name="topology")
app.add_typer(certs, name="certs")
app.add_typer(policy, name="policy")


@app.callback()
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> int:
    """Show the version, or the help."""
    if not version:
        return show_help(context)
    from importlib.metadata import version as installed

    typer.echo(f"linkwise {installed('linkwise')}")
    return 0


@topology.callback()
@certs.callback()
@policy.callback()
def show_help(context: typer.Context) -> int:
    """Show the help, where no subcommand is given."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
    return 0


@with_output_options
def replay(
    trace: Annotated[
        str,
        typer.Argument(metavar="TRACE", help="A published trace; docs/replay.md says where."),
    ],
    fleet: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="A published list of nodes, a cluster file, or machines such as 128xdgx1-v100.",
        ),
    ] = None,
    policies: Annotated[
        str,
        typer.Option(
            metavar="NAMES", help="Policies, separated by commas; module:factory for your own."
        ),
    ] = "linkwise,best-fit,gpu-packing,random",
    load: Annotated[
        float | None,
        typer.Option(
            min=0.01,
            max=100,
            help="Scale the arrivals to this load, as a part of the fleet; default: the trace's.",
        ),
    ] = None,
    seeds: Annotated[
        int, typer.Option(min=1, max=1000, help="Runs of each policy; each has another order.")
    ] = 1,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Last arrival after the first one, such as 7d; full: jobs that never end.",
        ),
    ] = None,
    append: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Keep each run in this file when it is done, and do not repeat those in it.",
        ),
    ] = None,
    output: Annotated[
        Literal["table", "json", "html"],
        typer.Option("--output", "-o", help="Output format; html is a page with curves."),
    ] = "table",
) -> int:
    """Compare scheduling policies on a trace, on a simulated fleet."""
    from linkwise.cli.replay import Options, show_replay
    from linkwise.runtime.process.clock import wall

    options = Options(fleet, policies, load, seeds, until, append)
    return show_replay(trace, options, output, clock=wall())


def _complete_kind(incomplete: str) -> list[str]:
    from linkwise.cli.schema import KINDS

    return [kind for kind in KINDS if kind.startswith(incomplete)]


@with_output_options
def schema(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            autocompletion=_complete_kind,
            help="A kind of -o json, Policy, or DryRun (OpenAPI of the dry-run API).",
        ),
    ],
) -> int:
    """Show the JSON Schema of an output or of the policy."""
    from linkwise.cli.schema import KINDS, schema_text

    if kind not in KINDS:
        raise typer.BadParameter(f"{kind!r} is not one of {', '.join(KINDS)}.", param_hint="KIND")
    typer.echo(schema_text(kind), nl=False)
    return 0


for command, example in (
    (completion, "source <(linkwise completion bash)"),
    (check, "linkwise check job.yaml --profile acs-profile.yaml -o json"),
    (snapshot, "linkwise snapshot --to cluster.json"),
    (inspect, "linkwise inspect dgx-0 -d"),
    (simulate, "linkwise simulate job.yaml --cluster cluster.yaml -o html"),
    (replay, "linkwise replay philly.csv --fleet 128xdgx1-v100 --seeds 10"),
    (explain, "linkwise explain gang team/mpijob-vgg16"),
    (dashboard, "linkwise dashboard --cluster cluster.json"),
    (schema, "linkwise schema CheckReport"),
):
    app.command(epilog=f"Example: {example}")(command)
