"""`linkwise snapshot`: write a live cluster into one file."""

from typer import echo

from cli.live.fetch import fetch_cluster
from cli.live.kubeconfig import Access
from cli.live.snapshot import snapshot_text
from cli.output.printer import Format, warn


def show_snapshot(access: Access, output: Format) -> int:
    """Write a live cluster as `simulate` and `check` read it; return the exit code.

    Raises:
        InputError: As `fetch_cluster`.
    """
    cluster = fetch_cluster(access)
    for warning in cluster.warnings:
        warn(warning)
    echo(snapshot_text(cluster.objects, output), nl=False)
    return 0
