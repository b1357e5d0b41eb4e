"""`linkwise policy export`: writes native admission policies."""

from collections.abc import Iterator

import typer

from linkwise.admission.decide.native_policy import Target, expressible, native_policies, refusals
from linkwise.manifest.value import InputError
from linkwise.policy.lint import lint_found
from linkwise.policy.policy_file import Found, Kind
from linkwise.views.files.policies import policy_snapshot, read_policies
from linkwise.views.files.source import shown_name
from linkwise.views.output.printer import Format, complain, dumped


def export_file(name: str, targets: frozenset[Target], output: Format) -> int:
    """Write a List of native policies; write what they cannot express to standard error.

    Returns:
        The exit code: 1 if something cannot be expressed.

    Raises:
        InputError: The file cannot be read, or is no valid policy.
    """
    texts = read_policies(name, None)
    policy = policy_snapshot(texts)
    file = shown_name(name)
    refused = [*_refused_keys(texts, targets)]
    refused += [f"{file}: {reason}; {fix}." for reason, fix in refusals(policy, targets)]
    for line in refused:
        complain(line)
    if refused:
        return 1
    objects = native_policies(policy, targets)
    document = {"apiVersion": "v1", "kind": "List", "items": objects}
    typer.echo(dumped(document, output), nl=False)
    return 0


def read_targets(text: str) -> frozenset[Target]:
    """Return the targets in a comma-separated list.

    Raises:
        InputError: One is unknown.
    """
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if word not in list(Target):
            raise InputError(f"--target: {word!r} is no target. Write map, vap or map,vap.")
    return frozenset(map(Target, words))


def _refused_keys(texts: list[tuple[str, Found]], targets: frozenset[Target]) -> Iterator[str]:
    wanted = " or ".join(target.value for target in Target if target in targets)
    for file, text in texts:
        if text.kind is Kind.PROFILES:
            continue
        for change in lint_found(text).changes:
            if text.kind is Kind.SHARING or not expressible(change.what, targets):
                yield (
                    f"{file}:{change.line}: {change.what}: target {wanted} cannot express this; "
                    "leave it to the webhook, and out of this file."
                )
