"""The parameters that several commands share."""

from typing import Annotated

import typer

from cli.output.printer import Format

Files = Annotated[
    list[str] | None,
    typer.Argument(metavar="FILE", help="Kubernetes manifests, YAML or JSON, or - ."),
]
Filenames = Annotated[
    list[str] | None, typer.Option("--filename", "-f", metavar="FILE", help="The same as FILE.")
]
Filename = Annotated[
    str | None, typer.Option("--filename", "-f", metavar="FILE", help="The same as FILE.")
]
Recursive = Annotated[
    bool,
    typer.Option("--recursive", "-R", help="Read the manifests in folders, and in theirs."),
]
Output = Annotated[Format, typer.Option("--output", "-o", help="How to answer.")]
Strict = Annotated[bool, typer.Option("--strict", help="Exit with 3 when there are warnings.")]
PolicyFile = Annotated[
    str | None, typer.Option("--policy", metavar="FILE", help="A Policy, or its ConfigMap.")
]
ProfileFile = Annotated[
    str | None,
    typer.Option("--profile", metavar="FILE", help="Profile selectors, or their ConfigMap."),
]
Kubeconfig = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Whose cluster and who you are; else $KUBECONFIG."),
]
Context = Annotated[
    str | None, typer.Option(metavar="NAME", help="Which of its contexts; else its own choice.")
]
Namespace = Annotated[
    str,
    typer.Option(
        "--namespace", "-n", metavar="NAME", help="Where manifests go that do not say it."
    ),
]
