"""What administrators decided, kept: the last that could be taken stays until there is better."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from cluster import keys
from policy.document import parse_policy
from policy.problem import PolicyError, Problem
from policy.profile import parse_profiles
from policy.snapshot import PolicySnapshot
from webhook.messages import printable


@dataclass(frozen=True, slots=True)
class ConfigSource:
    """A key of a ConfigMap."""

    namespace: str
    name: str
    key: str

    @property
    def display_name(self) -> str:
        """How people call the ConfigMap."""
        return f"ConfigMap {self.namespace}/{self.name}"


POLICY = ConfigSource(keys.POLICY_NAMESPACE, keys.POLICY_NAME, keys.POLICY_KEY)
PROFILES = ConfigSource(keys.PROFILE_NAMESPACE, keys.PROFILE_NAME, keys.PROFILE_KEY)
SOURCES = (POLICY, PROFILES)


@dataclass(frozen=True, slots=True)
class ActiveConfig:
    """The decisions in force, and what is wrong with those that are not."""

    snapshot: PolicySnapshot = field(default_factory=PolicySnapshot)
    loaded: frozenset[ConfigSource] = frozenset()
    """Of which a content was taken, or which are not there: then the defaults are."""
    refused: Mapping[ConfigSource, tuple[Problem, ...]] = field(default_factory=dict)
    """What is wrong with a present content, while the one taken before stays."""

    def update(self, source: ConfigSource, text: str | None) -> "ActiveConfig":
        """Return the decisions after a content has changed.

        Args:
            source: Where.
            text: What stands there now; None where nothing does.
        """
        refused = {one: problems for one, problems in self.refused.items() if one != source}
        policy, profiles = self.snapshot.policy, self.snapshot.profiles
        try:
            if source == POLICY:
                policy = parse_policy(text or "")
            else:
                profiles = parse_profiles(text or "")
        except PolicyError as error:
            return replace(self, refused={**refused, source: error.problems})
        found = PolicySnapshot(policy, profiles, self.snapshot.generation + 1)
        changed = found.digest != self.snapshot.digest
        return ActiveConfig(found if changed else self.snapshot, self.loaded | {source}, refused)

    def refusal(self, source: ConfigSource) -> str | None:
        """Say why a present content is not in force; None where it is."""
        problems = self.refused.get(source)
        if problems is None:
            return None
        return f"{source.display_name} cannot be taken: data[{source.key}]: {summarize(problems)}"

    def missing(self) -> str | None:
        """Say why nothing can be decided: there is a content, and never was one to be taken."""
        for source in SOURCES:
            if source not in self.loaded:
                why = self.refusal(source)
                return f"{source.display_name} was not read yet" if why is None else why
        return None


def summarize(problems: Sequence[Problem]) -> str:
    """Return everything that is wrong with a content, in one printable line."""
    if len(problems) == 1:
        return printable(problem_text(problems[0]))
    numbered = (f"({number}) {problem_text(one)}" for number, one in enumerate(problems, 1))
    return printable(f"{len(problems)} problems: {' '.join(numbered)}")


def problem_text(problem: Problem) -> str:
    """Return one problem with its line and its remedy."""
    path = f"{problem.path}: " if problem.path else ""
    return f"line {problem.line}: {path}{problem.message}; {problem.fix} [{problem.code}]"
