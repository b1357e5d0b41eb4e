"""The active policy and profiles: the last valid version of each ConfigMap."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from linkwise.cluster import keys
from linkwise.cluster.finding import printable
from linkwise.policy.document import parse_policy
from linkwise.policy.problem import PolicyError, Problem
from linkwise.policy.profile import parse_profiles
from linkwise.policy.snapshot import PolicySnapshot


@dataclass(frozen=True, slots=True)
class ConfigSource:
    """A key of a ConfigMap."""

    namespace: str
    name: str
    key: str

    @property
    def display_name(self) -> str:
        """The ConfigMap in messages."""
        return f"ConfigMap {self.namespace}/{self.name}"


POLICY = ConfigSource(keys.POLICY_NAMESPACE, keys.POLICY_NAME, keys.POLICY_KEY)
PROFILES = ConfigSource(keys.PROFILE_NAMESPACE, keys.PROFILE_NAME, keys.PROFILE_KEY)
SOURCES = (POLICY, PROFILES)


@dataclass(frozen=True, slots=True)
class ActiveConfig:
    """The policy and profiles in force, and the problems of invalid versions."""

    snapshot: PolicySnapshot = field(default_factory=PolicySnapshot)
    loaded: frozenset[ConfigSource] = frozenset()
    """Sources with a valid version so far; an absent ConfigMap is valid and means the defaults."""
    refused: Mapping[ConfigSource, tuple[Problem, ...]] = field(default_factory=dict)
    """Problems of present versions that are invalid; an earlier version stays in force."""

    def update(self, source: ConfigSource, text: str | None) -> "ActiveConfig":
        """Return the configuration after a change.

        Args:
            source: The key that has changed.
            text: Its present text; None where it is absent.
        """
        refused = {other: problems for other, problems in self.refused.items() if other != source}
        policy, profiles = self.snapshot.policy, self.snapshot.profiles
        try:
            if source == POLICY:
                policy = parse_policy(text or "")
            else:
                profiles = parse_profiles(text or "")
        except PolicyError as error:
            return replace(self, refused={**refused, source: error.problems})
        new = PolicySnapshot(policy, profiles, self.snapshot.generation + 1)
        snapshot = new if new.digest != self.snapshot.digest else self.snapshot
        return ActiveConfig(snapshot, self.loaded | {source}, refused)

    def error(self, source: ConfigSource) -> str | None:
        """Return why the present version of a source is not in force; None where it is."""
        problems = self.refused.get(source)
        if problems is None:
            return None
        return f"{source.display_name} is invalid: data[{source.key}]: {summarize(problems)}"

    def not_ready_reason(self) -> str | None:
        """Return why admission cannot decide: a source has had no valid version so far."""
        for source in SOURCES:
            if source not in self.loaded:
                return self.error(source) or f"{source.display_name} was not read yet"
        return None


def summarize(problems: Sequence[Problem]) -> str:
    """Return all problems of a text in one printable line."""
    if len(problems) == 1:
        return printable(problem_text(problems[0]))
    numbered = (f"({number}) {problem_text(each)}" for number, each in enumerate(problems, 1))
    return printable(f"{len(problems)} problems: {' '.join(numbered)}")


def problem_text(problem: Problem) -> str:
    """Return one problem with its line and its fix."""
    path = f"{problem.path}: " if problem.path else ""
    return f"line {problem.line}: {path}{problem.message}; {problem.fix} [{problem.code}]"
