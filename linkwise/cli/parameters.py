"""The parameters that several commands share."""

from typing import Annotated

import typer

from linkwise.views.output.printer import Format

Files = Annotated[
    list[str] | None,
    typer.Argument(metavar="FILE", help="Kubernetes manifests, YAML or JSON; - is a pipe."),
]
Filenames = Annotated[
    list[str] | None, typer.Option("--filename", "-f", metavar="FILE", help="The same as FILE.")
]
Filename = Annotated[
    str | None, typer.Option("--filename", "-f", metavar="FILE", help="The same as FILE.")
]
Recursive = Annotated[
    bool,
    typer.Option("--recursive", "-R", help="Read all manifests below a folder."),
]
Exclude = Annotated[
    list[str] | None,
    typer.Option(
        "--exclude", metavar="GLOB", help="Leave out these files or folders; may be repeated."
    ),
]
Output = Annotated[Format, typer.Option("--output", "-o", help="Output format.")]
Strict = Annotated[bool, typer.Option("--strict", help="Exit with 3 when there are warnings.")]
PolicyFile = Annotated[
    str | None, typer.Option("--policy", metavar="FILE", help="A Policy, or its ConfigMap.")
]
ProfileFile = Annotated[
    str | None,
    typer.Option("--profile", metavar="FILE", help="Profile selectors, or their ConfigMap."),
]
ClusterFile = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="A cluster file or snapshot, instead of the live cluster."),
]
Kubeconfig = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Kubeconfig of the cluster; default: $KUBECONFIG."),
]
Context = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Context of the kubeconfig; default: its current one."),
]
Namespace = Annotated[
    str,
    typer.Option("--namespace", "-n", metavar="NAME", help="Namespace of objects without one."),
]
ServerUrl = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="cluster|URL",
        help="Query the webhook: cluster for that of the kubeconfig's cluster, else its address.",
    ),
]
TokenFile = Annotated[
    str | None,
    typer.Option(
        metavar="FILE", help="Token for --server: kubectl create token NAME --audience linkwise."
    ),
]
AuthorityFile = Annotated[
    str | None,
    typer.Option(
        "--certificate-authority",
        metavar="FILE",
        help="CA of the server's certificate; default: the system's CAs.",
    ),
]
TlsServerName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="Name in the server's certificate; default: the host of the URL."
    ),
]
