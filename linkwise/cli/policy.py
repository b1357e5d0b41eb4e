"""`linkwise policy`: its subcommands and their parameters."""

from typing import Annotated, Literal

import typer

from linkwise.cli.output_options import with_output_options
from linkwise.cli.parameters import Filename, Output, Strict
from linkwise.views.output.printer import Format

policy = typer.Typer(
    help="Validate or export the policy and the profiles.",
    epilog="Example: linkwise policy lint acs-profile.yaml",
    invoke_without_command=True,
)


@policy.command("lint", epilog="Example: linkwise policy lint acs-profile.yaml")
@with_output_options
def policy_lint(
    file: Annotated[
        str | None,
        typer.Argument(metavar="FILE", help="A Policy, profile selectors, or a ConfigMap."),
    ] = None,
    filename: Filename = None,
    strict: Strict = False,
    output: Output = Format.TABLE,
) -> int:
    """Show errors and risky settings of a policy or profile."""
    from linkwise.cli.policy_lint import lint_file
    from linkwise.views.files.source import only_file

    return lint_file(only_file(file, filename), output, strict=strict)


@policy.command("export", epilog="Example: linkwise policy export policy.yaml --target map")
@with_output_options
def policy_export(
    target: Annotated[
        str,
        typer.Option(
            metavar="KINDS",
            help="map: MutatingAdmissionPolicy; vap: ValidatingAdmissionPolicy; or map,vap.",
        ),
    ],
    file: Annotated[
        str | None,
        typer.Argument(metavar="FILE", help="A Policy, profile selectors, or ConfigMaps of both."),
    ] = None,
    filename: Filename = None,
    output: Annotated[
        Literal["yaml", "json"], typer.Option("--output", "-o", help="Output format.")
    ] = "yaml",
) -> int:
    """Write native admission policies; refuse what they cannot express."""
    from linkwise.cli.policy_export import export_file, read_targets
    from linkwise.views.files.source import only_file

    return export_file(only_file(file, filename), read_targets(target), Format(output))
