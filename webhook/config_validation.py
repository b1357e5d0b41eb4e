"""`/validate`: validating webhook for the ConfigMaps of policy and profiles.

The review is decoded here. `lint_text` checks the text in a child process, since its author is not
trusted.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec
from msgspec import Struct, field

from linkwise.admission.decide.messages import admission_warnings
from linkwise.cluster.finding import Severity, printable
from linkwise.cluster.keys import POLICY_KEY, PROFILE_KEY
from linkwise.manifest.lines import WHOLE
from linkwise.policy.active_config import POLICY, SOURCES, ConfigSource, problem_text, summarize
from linkwise.policy.lint import lint_policy, lint_profiles
from linkwise.policy.problem import PolicyError, Problem, check_length
from linkwise.topology.catalogue import NAMES
from webhook.review import (
    AdmissionRequest,
    GroupVersionKind,
    allow_unchanged,
    deny_invalid,
    parse_request,
    read_object,
)


class _Data(Struct, frozen=True):
    """The keys of our ConfigMaps; all others are skipped."""

    policy: str | None = field(default=None, name=POLICY_KEY)
    profiles: str | None = field(default=None, name=PROFILE_KEY)


class _ConfigMap(Struct, frozen=True):
    data: _Data | None = None


@dataclass(frozen=True, slots=True)
class ConfigResponse:
    """The encoded response to a review, and its fields in the log."""

    body: bytes
    verdict: str
    """`allowed`, `denied`, or `skipped` where it is none of our ConfigMaps."""
    uid: str
    source: str = ""
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class ConfigReview:
    """A review whose text must be checked."""

    request: AdmissionRequest
    source: ConfigSource
    text: str


_CONFIG_MAP = GroupVersionKind("", "v1", "ConfigMap")
_config_maps = msgspec.json.Decoder(_ConfigMap)
_problems = msgspec.json.Decoder(tuple[Problem, ...])


def read_config_review(body: bytes) -> ConfigResponse | ConfigReview:
    """Return the review of one of our ConfigMaps, or the response where no check is needed.

    Raises:
        ProtocolError: The body is not an AdmissionReview v1, or its object is not a ConfigMap.
    """
    request = parse_request(body)
    source = _source(request)
    if source is None:
        return ConfigResponse(allow_unchanged(request), "skipped", request.uid)
    data = read_object(request.object, _config_maps).data or _Data()
    text = data.policy if source == POLICY else data.profiles
    if text is None:
        return ConfigResponse(allow_unchanged(request), "skipped", request.uid)
    review = ConfigReview(request, source, text)
    try:
        check_length(text, WHOLE)
    except PolicyError as error:
        return config_response(review, error.problems)
    return review


def lint_text(key: str, text: str) -> bytes:
    """Return the problems and warnings of the text under a key of a ConfigMap, as JSON.

    Cost: about 5 µs for each YAML value; a policy may have thousands.
    """
    lint = lint_policy(text, machines=NAMES) if key == POLICY_KEY else lint_profiles(text)
    return msgspec.json.encode(lint.problems)


def decode_problems(encoded: bytes) -> tuple[Problem, ...]:
    """Return the problems that `lint_text` has encoded."""
    return _problems.decode(encoded)


def config_response(review: ConfigReview, problems: Sequence[Problem]) -> ConfigResponse:
    """Return the response to a review: an error denies, a warning is shown."""
    request, source = review.request, review.source
    errors = [problem for problem in problems if problem.severity is Severity.ERROR]
    if errors:
        field_name = f"data[{source.key}]"
        causes = [(field_name, printable(problem_text(error))) for error in errors]
        body = deny_invalid(request, f"{field_name}: {summarize(errors)}", causes)
    else:
        with_lines = (
            replace(warning, message=f"line {warning.line}: {warning.message}")
            for warning in problems
        )
        body = allow_unchanged(request, admission_warnings(with_lines))
    verdict = "denied" if errors else "allowed"
    return ConfigResponse(body, verdict, request.uid, source.display_name, tuple(problems))


def limit_response(review: ConfigReview, limit: str) -> ConfigResponse:
    """Return the response to a review whose text exceeds a limit.

    Args:
        review: The review.
        limit: A clause that names the limit.
    """
    problem = Problem(1, "", f"the text cannot be checked: {limit}", "shorten it")
    return config_response(review, [problem])


def _source(request: AdmissionRequest) -> ConfigSource | None:
    """Return which of our ConfigMaps is written; None for any other request."""
    if request.kind != _CONFIG_MAP or request.operation not in {"CREATE", "UPDATE"}:
        return None
    name = (request.namespace, request.name)
    return next((source for source in SOURCES if (source.namespace, source.name) == name), None)
