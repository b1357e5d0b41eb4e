"""`linkwise certs status`: shows certificates, the rotation of the CA, and what happens next."""

from collections.abc import Sequence

from cli.analysis.certificate_objects import read_certificates
from cli.files.source import read_objects
from cli.output.printer import Format, emit
from cli.render.certificates_text import show_certificates


def show_status(
    files: Sequence[str], kubeconfig: str | None, context: str | None, output: Format
) -> int:
    """Show the certificates of a live cluster, or those in files; return the exit code.

    Raises:
        InputError: They cannot be read.
    """
    if files:
        report = read_certificates(value for name in files for value in read_objects(name))
    else:
        # These take long to import; files need none of them.
        from cli.live.certificates import fetch_certificates  # noqa: PLC0415
        from cli.live.kubeconfig import Access  # noqa: PLC0415

        report = fetch_certificates(Access(kubeconfig, context, None))
    if output is Format.TABLE:
        show_certificates(report)
    else:
        emit(report, output)
    return 1 if report.problems else 0
