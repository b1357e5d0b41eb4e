"""`linkwise certs`: its subcommand and its parameters."""

from typing import Annotated

import typer

from cli.commands.output_options import with_output_options
from cli.commands.parameters import Context, Filenames, Kubeconfig, Output
from cli.output.printer import Format

certs = typer.Typer(
    help="Show the certificates of Linkwise.",
    epilog="Example: linkwise certs status",
    invoke_without_command=True,
)


@certs.command("status", epilog="Example: linkwise certs status -o json")
@with_output_options
def certs_status(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE",
            help="ConfigMap linkwise-certs and registrations, instead of the live cluster.",
        ),
    ] = None,
    filenames: Filenames = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: Output = Format.TABLE,
) -> int:
    """Show CAs, certificates, their expiry and trust, and the next step."""
    from cli.commands.certs_status import show_status

    return show_status([*(files or ()), *(filenames or ())], kubeconfig, context, output)
