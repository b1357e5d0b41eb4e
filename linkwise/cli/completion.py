"""`linkwise completion`: shows the completion script of a shell."""

from typing import Annotated, Literal

import typer
from typer.completion import get_completion_script  # type: ignore[attr-defined]

from linkwise.cli.output_options import with_output_options


@with_output_options
def completion(
    context: typer.Context,
    shell: Annotated[
        Literal["bash", "zsh", "fish", "powershell"],
        typer.Argument(metavar="SHELL", help="bash, zsh, fish or powershell."),
    ],
) -> int:
    """Show the completion script of a shell; kubectl's own completes kubectl linkwise."""
    # As a plugin it is called `kubectl linkwise`.
    name = str(context.find_root().info_name).split()[-1]
    script = get_completion_script(prog_name=name, complete_var="_LINKWISE_COMPLETE", shell=shell)
    typer.echo(script)
    return 0
