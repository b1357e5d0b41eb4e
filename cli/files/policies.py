"""What administrators decided, from the files that people name: a policy and profiles."""

from collections.abc import Iterable, Iterator
from typing import NoReturn

from cli.files.source import read_text, shown_name
from manifest.lines import embedded
from manifest.value import InputError, Value
from policy.document import Policy, parse_plugin_config, parse_policy
from policy.policy_file import Found, Kind, read_policy_file
from policy.problem import PolicyError
from policy.profile import Profiles, parse_profiles
from policy.sharing import PluginConfig, plugin_groups
from policy.snapshot import PolicySnapshot
from webhook.active_config import POLICY, PROFILES

_KINDS = {POLICY: Kind.POLICY, PROFILES: Kind.PROFILES}
"""What the ConfigMaps hold that a cluster's webhook reads."""


def decisions_in(policy_file: str | None, profile_file: str | None) -> list[tuple[str, Found]]:
    """Return the texts of the files that people name, each with the name of its file.

    Raises:
        InputError: A file cannot be read, or holds neither policy nor profiles.
    """
    found: list[tuple[str, Found]] = []
    for name in filter(None, (policy_file, profile_file)):
        try:
            found += [(shown_name(name), one) for one in read_policy_file(read_text(name))]
        except PolicyError as error:
            _refuse(shown_name(name), error)
    return found


def decisions_of(objects: Iterable[Value]) -> Iterator[tuple[str, Found]]:
    """Yield the texts of a cluster's own ConfigMaps, each with the name of its file."""
    for value in objects:
        if value.need("kind").plain != "ConfigMap" or not (data := value.child("data")):
            continue
        metadata = value.need("metadata").mapping()
        for home, kind in _KINDS.items():
            text = data.child(home.key)
            named = (metadata.get("namespace"), metadata.get("name"))
            # One that is empty decides nothing.
            if named == (home.namespace, home.name) and text and text.plain != "":
                at = embedded(text.document, text.path)
                yield value.file, Found(kind, text.text(), at)


def snapshot_of(found: Iterable[tuple[str, Found]]) -> PolicySnapshot:
    """Return what the texts decide; where two are of one kind, the later one counts.

    Raises:
        InputError: A text is wrong; with its line.
    """
    policy, profiles, plugin = Policy(), Profiles(), dict[str, PluginConfig]()
    for file, one in found:
        try:
            match one.kind:
                case Kind.POLICY:
                    policy = parse_policy(one.text, at=one.at)
                case Kind.PROFILES:
                    profiles = parse_profiles(one.text, at=one.at)
                case Kind.SHARING:
                    plugin[one.name] = parse_plugin_config(one.text, at=one.at)
        except PolicyError as error:
            _refuse(file, error)
    if plugin:
        groups = (*policy.sharing.groups, *plugin_groups(plugin))
        sharing = policy.sharing.model_copy(update={"groups": groups})
        policy = policy.model_copy(update={"sharing": sharing})
    return PolicySnapshot(policy, profiles)


def _refuse(file: str, error: PolicyError) -> NoReturn:
    first, *others = error.problems
    path = f"{first.path}: " if first.path else ""
    more = f" ({len(others)} more: linkwise policy lint {file})" if others else ""
    raise InputError(f"{file}:{first.line}: {path}{first.message}; {first.fix}.{more}") from None
