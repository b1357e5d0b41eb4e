"""Name the command to run for a text that is no manifest, such as what kubectl shows people."""

import re

_PRINTED = re.compile(
    r"\s*(?:(?P<described>Name:[ \t]+\S+[ \t]*\n(?:.*\n){0,5}?(?:Roles|Labels|Namespace|Priority):)"
    r"|NAME(?:SPACE)?[ \t]+[A-Z])"
)
"""The beginning of what `kubectl describe` and `kubectl get` print."""


def hint_about(text: str) -> str:
    """Return a sentence with the command whose output to give instead; empty if it is not known."""
    if "{{" in text:
        return " Of a Helm chart, pipe the output of helm template."
    printed = _PRINTED.match(text)
    if printed is None:
        return ""
    what = "kubectl describe" if printed["described"] else "kubectl get, as a table"
    return f" This is the output of {what}: give that of kubectl get with -o yaml."
