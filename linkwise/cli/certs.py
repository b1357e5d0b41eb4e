"""`linkwise certs`: its subcommand and its parameters."""

from typing import Annotated

import typer

from linkwise.cli.output_options import with_output_options
from linkwise.cli.parameters import Context, Filenames, Kubeconfig, Output
from linkwise.views.output.printer import Format, emit

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
    # These take long to import; help needs none of them, and files need no live cluster.
    from linkwise.views.analysis.certificate_objects import read_certificates
    from linkwise.views.files.source import read_objects
    from linkwise.views.render.certificates_text import show_certificates

    if names := [*(files or ()), *(filenames or ())]:
        report = read_certificates(value for name in names for value in read_objects(name))
    else:
        from linkwise.views.live.certificates import fetch_certificates
        from linkwise.views.live.kubeconfig import Access

        report = fetch_certificates(Access(kubeconfig, context, None))
    if output is Format.TABLE:
        show_certificates(report)
    else:
        emit(report, output)
    return 1 if report.problems else 0
