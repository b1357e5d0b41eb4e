"""The commands that read manifests, with their parameters: `check` and `simulate`.

Each command imports what it runs when it runs, so that `--help` does not wait for libraries.
"""

from typing import Annotated, Literal

import typer

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
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace",
            "-n",
            metavar="NAME",
            help="Namespace of objects without one; default: default, with --server cluster that "
            "of the context.",
        ),
    ] = None,
    server: ServerUrl = None,
    token_file: TokenFile = None,
    authority_file: AuthorityFile = None,
    tls_server_name: TlsServerName = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
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

    if server == "cluster" and (token_file or authority_file or tls_server_name):
        raise typer.BadParameter(
            "--server cluster uses the kubeconfig: it goes with none of --token-file, "
            "--certificate-authority and --tls-server-name."
        )
    if server != "cluster" and (kubeconfig or context):
        raise typer.BadParameter("--kubeconfig and --context go with --server cluster.")
    named = (*(files or ()), *(filenames or ()))
    manifests = all_files(named, recursive=recursive, exclude=exclude or ())
    inputs = InputFiles(manifests, policy_file, profile_file, cluster, namespace or "default")
    if server is None:
        from functools import partial

        from linkwise.runtime.process.clock import wall
        from linkwise.views.analysis.check import judge
        from linkwise.views.output.progress import with_progress

        read = read_inputs(inputs)
        report = judge(read, partial(with_progress, title="Checking pods"), wall())
        return show_report(report, View(output), read.unreadable, strict=strict)
    if server == "cluster":
        from linkwise.views.live.dry_run_in_cluster import dry_run_in_cluster
        from linkwise.views.live.kubeconfig import Access

        report, refused = dry_run_in_cluster(Access(kubeconfig, context, namespace), inputs)
    else:
        from linkwise.views.live.dry_run_server import Server, dry_run

        webhook = Server(server, token_file, authority_file, tls_server_name)
        report, refused = dry_run(webhook, inputs)
    return show_report(report, View(output), refused, strict=strict)


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
