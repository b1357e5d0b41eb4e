"""The root command `linkwise`: its subcommands and their parameters.

Each subcommand imports what it runs when it runs, so that `--help` does not wait for libraries.
"""

from typing import Annotated, Literal

import typer

from linkwise.cli.certs import certs
from linkwise.cli.completion import completion
from linkwise.cli.output_options import with_output_options
from linkwise.cli.parameters import (
    AuthorityFile,
    Context,
    Exclude,
    Filenames,
    Files,
    Kubeconfig,
    Namespace,
    PolicyFile,
    ProfileFile,
    Recursive,
    ServerUrl,
    Strict,
    TlsServerName,
    TokenFile,
)
from linkwise.cli.policy import policy
from linkwise.cli.topology import topology
from linkwise.views.output.printer import Format

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
app.command(epilog="Example: source <(linkwise completion bash)")(completion)


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


@app.command(epilog="Example: linkwise check job.yaml --profile acs-profile.yaml -o json")
@with_output_options
def check(
    files: Files = None,
    filenames: Filenames = None,
    recursive: Recursive = False,
    exclude: Exclude = None,
    policy_file: PolicyFile = None,
    profile_file: ProfileFile = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Nodes, pods and namespaces; also shows whether the pods fit there.",
        ),
    ] = None,
    namespace: Namespace = "default",
    server: ServerUrl = None,
    token_file: TokenFile = None,
    authority_file: AuthorityFile = None,
    tls_server_name: TlsServerName = None,
    strict: Strict = False,
    output: Annotated[
        Literal["table", "json", "yaml", "junit", "sarif", "github"],
        typer.Option("--output", "-o", help="Output format; the last three are for CI."),
    ] = "table",
) -> int:
    """Show the result of admission for the pods in manifests."""
    from linkwise.cli.check import View, show_report
    from linkwise.views.files.inputs import InputFiles, read_inputs
    from linkwise.views.files.source import all_files

    named = (*(files or ()), *(filenames or ()))
    manifests = all_files(named, recursive=recursive, exclude=exclude or ())
    inputs = InputFiles(manifests, policy_file, profile_file, cluster, namespace)
    if server is None:
        from functools import partial

        from linkwise.runtime.process.clock import wall
        from linkwise.views.analysis.check import judge
        from linkwise.views.output.progress import with_progress

        read = read_inputs(inputs)
        report = judge(read, partial(with_progress, title="Checking pods"), wall())
        return show_report(report, View(output), read.unreadable, strict=strict)
    from linkwise.views.live.dry_run_client import Server, dry_run

    webhook = Server(server, token_file, authority_file, tls_server_name)
    report, refused = dry_run(webhook, inputs)
    return show_report(report, View(output), refused, strict=strict)


@app.command(epilog="Example: linkwise snapshot --to cluster.json")
@with_output_options
def snapshot(
    watch: Annotated[
        bool,
        typer.Option(
            "--watch", help="Write the jobs until Ctrl-C, each when it ended: a trace for replay."
        ),
    ] = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: Annotated[
        Literal["json", "yaml"], typer.Option("--output", "-o", help="Output format.")
    ] = "json",
    to: str | None = None,
) -> int:
    """Write the state of a live cluster into one file."""
    from linkwise.cli.snapshot import write_history, write_snapshot
    from linkwise.views.live.kubeconfig import Access

    access = Access(kubeconfig, context)
    return write_history(access, to) if watch else write_snapshot(access, Format(output), to)


@app.command(epilog="Example: linkwise inspect dgx-0 -d")
@with_output_options
def inspect(
    node: Annotated[
        str | None, typer.Argument(metavar="NODE", help="Show one node; default: all with GPUs.")
    ] = None,
    detail: Annotated[
        bool, typer.Option("--detail", "-d", help="Show each GPU and its pods.")
    ] = False,
    slots: Annotated[
        bool, typer.Option("--slots", help="Show the free sets of GPUs by size, pool and model.")
    ] = False,
    style: Annotated[
        Literal["linkwise", "gpushare"],
        typer.Option("--format", help="Table layout; that of gpushare shows only memory."),
    ] = "linkwise",
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="A cluster file or snapshot, instead of the live cluster."
        ),
    ] = None,
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace",
            "-n",
            metavar="NAME",
            help="Show only nodes on which pods of this namespace have GPUs.",
        ),
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: Annotated[
        Literal["table", "wide", "json", "yaml", "html"],
        typer.Option(
            "--output",
            "-o",
            help="Output format; wide shows all rows, html is a page of all nodes.",
        ),
    ] = "table",
) -> int:
    """Show the GPUs of nodes, and the pods that have them."""
    if slots and (detail or style == "gpushare" or output == "html"):
        raise typer.BadParameter("--slots goes with none of -d, --format gpushare and -o html.")
    from linkwise.cli.inspect import NodeFilter, Style, View, show_inspection
    from linkwise.runtime.process.clock import wall
    from linkwise.views.live.kubeconfig import Access
    from linkwise.views.live.load import load_cluster
    from linkwise.views.render.page.caption import Caption

    loaded = load_cluster(Access(kubeconfig, context), cluster)
    command = ("linkwise", "inspect", *(("--cluster", cluster) if cluster else ()))
    caption = Caption(command, wall(), (loaded.source,))
    view = View(output, Style(style), detail=detail, slots=slots)
    return show_inspection(loaded, NodeFilter(node, namespace), view, caption)


@app.command(epilog="Example: linkwise simulate job.yaml --cluster cluster.yaml -o html")
@with_output_options
def simulate(
    cluster: Annotated[
        str,
        typer.Option(
            metavar="FILE", help="Nodes, pods and namespaces: a cluster file or a snapshot."
        ),
    ],
    files: Files = None,
    filenames: Filenames = None,
    recursive: Recursive = False,
    exclude: Exclude = None,
    policy_file: PolicyFile = None,
    profile_file: ProfileFile = None,
    namespace: Namespace = "default",
    mode: Annotated[
        Literal["fast", "keep"],
        typer.Option(
            help="fast: most bandwidth for this job; keep: spare good GPU sets for later jobs."
        ),
    ] = "keep",
    output: Annotated[
        Literal["table", "wide", "json", "yaml", "html"],
        typer.Option("--output", "-o", help="Output format; wide shows all rows, html is a page."),
    ] = "table",
) -> int:
    """Show the nodes and GPUs that the pods in manifests would get."""
    from linkwise.cli.simulate import View, show_simulation
    from linkwise.runtime.process.clock import wall
    from linkwise.topology.choice import ChoiceMode
    from linkwise.views.files.inputs import InputFiles, read_inputs
    from linkwise.views.files.source import all_files
    from linkwise.views.render.page.caption import Caption

    named = (*(files or ()), *(filenames or ()))
    manifests = all_files(named, recursive=recursive, exclude=exclude or ())
    inputs = read_inputs(InputFiles(manifests, policy_file, profile_file, cluster, namespace))
    command = ("linkwise", "simulate", *manifests, "--cluster", cluster)
    caption = Caption(command, wall(), (*manifests, cluster))
    return show_simulation(inputs, View(output), ChoiceMode(mode), caption)


@app.command(epilog="Example: linkwise replay philly.csv --fleet 128xdgx1-v100 --seeds 10")
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


@app.command(epilog="Example: linkwise explain gang team/mpijob-vgg16")
@with_output_options
def explain(
    kind: Annotated[
        Literal["pod", "gang"], typer.Argument(metavar="pod|gang", help="Kind of the object.")
    ],
    name: Annotated[str, typer.Argument(metavar="NAMESPACE/NAME", help="Name of the pod or gang.")],
    cluster: Annotated[
        str | None, typer.Option(metavar="FILE", help="A snapshot instead of the live cluster.")
    ] = None,
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace", "-n", metavar="NAME", help="Its namespace; default: that of the context."
        ),
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: Annotated[
        Literal["table", "wide", "json", "yaml"],
        typer.Option("--output", "-o", help="Output format; wide shows all rows."),
    ] = "table",
) -> int:
    """Explain the placement of a pod or gang, or why it waits."""
    from linkwise.cli.explain import show_explanation
    from linkwise.runtime.process.clock import wall
    from linkwise.views.live.kubeconfig import Access
    from linkwise.views.live.load import load_cluster

    loaded = load_cluster(Access(kubeconfig, context, namespace), cluster)
    return show_explanation(loaded, kind, name, output, clock=wall())


@app.command(epilog="Example: linkwise dashboard --cluster cluster.json")
def dashboard(
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="A cluster file or snapshot, instead of the live cluster."
        ),
    ] = None,
    port: Annotated[
        int,
        typer.Option(
            metavar="N", min=0, max=65535, help="Port on loopback; default: any that is free."
        ),
    ] = 0,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Only print the address of the page.")
    ] = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> int:
    """Show a live page of the cluster: its GPUs and links, and why gangs wait."""
    from linkwise.cli.dashboard import run_dashboard
    from linkwise.views.live.kubeconfig import Access
    from linkwise.views.live.load import load_cluster

    access = Access(kubeconfig, context)
    loaded = load_cluster(access, cluster)
    watched = None if cluster else access
    return run_dashboard(loaded, watched, port=port, open_=not no_browser)


def _complete_kind(incomplete: str) -> list[str]:
    from linkwise.cli.schema import KINDS

    return [kind for kind in KINDS if kind.startswith(incomplete)]


@app.command(epilog="Example: linkwise schema CheckReport")
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
