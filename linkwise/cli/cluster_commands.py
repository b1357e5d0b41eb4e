"""The commands that read a cluster, with their parameters: `inspect`, `explain` and others.

Each command imports what it runs when it runs, so that `--help` does not wait for libraries.
"""

from typing import Annotated, Literal

import typer

from linkwise.cli.output_options import with_output_options
from linkwise.cli.parameters import ClusterFile, Context, Kubeconfig
from linkwise.views.output.printer import Format


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
    from linkwise.cli.long_running import refuse_windows
    from linkwise.cli.snapshot import write_history, write_snapshot
    from linkwise.views.live.kubeconfig import Access

    if watch:
        refuse_windows("linkwise snapshot --watch")
    access = Access(kubeconfig, context)
    return write_history(access, to) if watch else write_snapshot(access, Format(output), to)


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
    cluster: ClusterFile = None,
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
    from linkwise.cli.explain import show_explanation, show_own_explanation
    from linkwise.runtime.process.clock import wall
    from linkwise.views.live.kubeconfig import Access
    from linkwise.views.live.load import load_cluster
    from linkwise.views.live.missing_role import MissingRole

    access = Access(kubeconfig, context, namespace)
    try:
        loaded = load_cluster(access, cluster)
    except MissingRole:
        return show_own_explanation(access, kind, name, output, clock=wall())
    return show_explanation(loaded, kind, name, output, clock=wall())


def dashboard(
    cluster: ClusterFile = None,
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
    from linkwise.cli.long_running import refuse_windows

    refuse_windows("linkwise dashboard")
    from linkwise.cli.dashboard import run_dashboard
    from linkwise.views.live.kubeconfig import Access
    from linkwise.views.live.load import load_cluster

    access = Access(kubeconfig, context)
    loaded = load_cluster(access, cluster)
    watched = None if cluster else access
    return run_dashboard(loaded, watched, port=port, open_=not no_browser)
