"""`/validate`: whether a ConfigMap holds decisions that can be taken, before it is stored.

The review is read here. The text in it is judged by `lint_text` in a child process, since its
author is not known.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec
from msgspec import Struct, field

from cluster.finding import Severity
from cluster.keys import POLICY_KEY, PROFILE_KEY
from manifest.lines import WHOLE
from policy.lint import lint_policy, lint_profiles
from policy.problem import PolicyError, Problem, check_length
from topology.catalogue import NAMES
from webhook.active_config import POLICY, SOURCES, ConfigSource, problem_text, summarize
from webhook.messages import admission_warnings, printable
from webhook.review import (
    AdmissionRequest,
    GroupVersionKind,
    allow_unchanged,
    deny_invalid,
    parse_request,
    read_object,
)


class _Data(Struct, frozen=True):
    """The keys that are ours. Others are passed over, however many they are."""

    policy: str | None = field(default=None, name=POLICY_KEY)
    profiles: str | None = field(default=None, name=PROFILE_KEY)


class _ConfigMap(Struct, frozen=True):
    data: _Data | None = None


@dataclass(frozen=True, slots=True)
class ConfigResponse:
    """An answer, and its fields in the log."""

    answer: bytes
    verdict: str
    """`allowed`, `denied`, or `skipped` where it is no ConfigMap of ours."""
    uid: str
    source: str = ""
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class ConfigReview:
    """A text that is to be judged, and the review that asks for it."""

    request: AdmissionRequest
    source: ConfigSource
    text: str


_CONFIG_MAP = GroupVersionKind("", "v1", "ConfigMap")
_maps = msgspec.json.Decoder(_ConfigMap)
_problems = msgspec.json.Decoder(tuple[Problem, ...])


def read_config_review(body: bytes) -> ConfigResponse | ConfigReview:
    """Return the text that a review of a ConfigMap asks about, or the answer where none is needed.

    Raises:
        ProtocolError: The body is not an AdmissionReview v1, or its ConfigMap is none.
    """
    request = parse_request(body)
    source = _home(request)
    if source is None:
        return ConfigResponse(allow_unchanged(request), "skipped", request.uid)
    data = read_object(request.object, _maps).data or _Data()
    text = data.policy if source == POLICY else data.profiles
    if text is None:
        return ConfigResponse(allow_unchanged(request), "skipped", request.uid)
    question = ConfigReview(request, source, text)
    try:
        check_length(text, WHOLE)
    except PolicyError as error:
        return config_response(question, error.problems)
    return question


def lint_text(key: str, text: str) -> bytes:
    """Return what is wrong or doubtful in the text under a key of a ConfigMap, as JSON.

    Cost: about 5 µs for each value in a text of YAML, and a policy can have thousands.
    """
    lint = lint_policy(text, machines=NAMES) if key == POLICY_KEY else lint_profiles(text)
    return msgspec.json.encode(lint.problems)


def decode_problems(found: bytes) -> tuple[Problem, ...]:
    """Return the problems that `lint_text` has found."""
    return _problems.decode(found)


def config_response(question: ConfigReview, problems: Sequence[Problem]) -> ConfigResponse:
    """Return the answer to a review after its text was judged."""
    request, source = question.request, question.source
    errors = [one for one in problems if one.severity is Severity.ERROR]
    if errors:
        causes = [(f"data[{source.key}]", printable(problem_text(one))) for one in errors]
        answer, verdict = (
            deny_invalid(request, f"data[{source.key}]: {summarize(errors)}", causes),
            "denied",
        )
    else:
        lines = (replace(one, message=f"line {one.line}: {one.message}") for one in problems)
        answer, verdict = allow_unchanged(request, admission_warnings(lines)), "allowed"
    return ConfigResponse(answer, verdict, request.uid, source.display_name, tuple(problems))


def limit_response(question: ConfigReview, why: str) -> ConfigResponse:
    """Return the answer that a text cannot be judged within the limits.

    Args:
        question: What was asked.
        why: A clause that says which limit.
    """
    return config_response(
        question, [Problem(1, "", f"the text cannot be judged: {why}", "shorten it")]
    )


def _home(request: AdmissionRequest) -> ConfigSource | None:
    """Return which of our ConfigMaps is being written."""
    if request.kind != _CONFIG_MAP or request.operation not in {"CREATE", "UPDATE"}:
        return None
    named = (request.namespace, request.name)
    return next((source for source in SOURCES if (source.namespace, source.name) == named), None)
