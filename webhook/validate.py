"""`/validate`: whether a ConfigMap holds decisions that can be taken, before it is stored."""

from dataclasses import dataclass, replace

import msgspec
from msgspec import Struct

from cluster.finding import Severity
from policy.lint import lint_policy, lint_profiles
from policy.problem import Problem
from topology.catalogue import NAMES
from webhook.answer import printable, warnings_of
from webhook.decided import HOMES, POLICY, Home, sentence, told
from webhook.review import Asked, GroupVersionKind, asked, read_object, refused, untouched


class _ConfigMap(Struct, frozen=True):
    data: dict[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """An answer, and what the log says of it."""

    answer: bytes
    verdict: str
    """`allowed`, `denied`, or `skipped` where it is no ConfigMap of ours."""
    uid: str
    source: str = ""
    problems: tuple[Problem, ...] = ()


_CONFIG_MAP = GroupVersionKind("", "v1", "ConfigMap")
_maps = msgspec.json.Decoder(_ConfigMap)


def validate(body: bytes) -> Judged:
    """Return the answer to a review of a ConfigMap; anything else passes.

    Raises:
        ProtocolError: The body is not an AdmissionReview v1, or its ConfigMap is none.

    Cost: about 5 µs for each value in a text of YAML, and a policy can have thousands.
    """
    request = asked(body)
    home = _home(request)
    text = (read_object(request.object, _maps).data or {}).get(home.key) if home else None
    if home is None or text is None:
        return Judged(untouched(request), "skipped", request.uid)
    lint = lint_policy(text, machines=NAMES) if home == POLICY else lint_profiles(text)
    problems = lint.problems
    errors = [one for one in problems if one.severity is Severity.ERROR]
    if errors:
        causes = [(f"data[{home.key}]", printable(sentence(one))) for one in errors]
        answer, verdict = refused(request, f"data[{home.key}]: {told(errors)}", causes), "denied"
    else:
        lines = (replace(one, message=f"line {one.line}: {one.message}") for one in problems)
        answer, verdict = untouched(request, warnings_of(lines)), "allowed"
    return Judged(answer, verdict, request.uid, home.words, problems)


def _home(request: Asked) -> Home | None:
    """Return which of our ConfigMaps is being written."""
    if request.kind != _CONFIG_MAP or request.operation not in {"CREATE", "UPDATE"}:
        return None
    named = (request.namespace, request.name)
    return next((home for home in HOMES if (home.namespace, home.name) == named), None)
