"""Reads policies and profiles from files, and from the ConfigMaps of a cluster."""

from collections.abc import Iterable, Iterator
from typing import NoReturn

from linkwise.manifest.lines import embedded
from linkwise.manifest.value import InputError, Value
from linkwise.policy.active_config import POLICY, PROFILES
from linkwise.policy.document import Policy, parse_plugin_config, parse_policy
from linkwise.policy.policy_file import Found, Kind, read_policy_file
from linkwise.policy.problem import PolicyError
from linkwise.policy.profile import Profiles, parse_profiles
from linkwise.policy.sharing import PluginConfig, plugin_groups
from linkwise.policy.snapshot import PolicySnapshot
from linkwise.views.files.source import read_text, shown_name

_KINDS = {POLICY: Kind.POLICY, PROFILES: Kind.PROFILES}
"""The content of each ConfigMap that the webhook reads."""


def read_policies(policy_file: str | None, profile_file: str | None) -> list[tuple[str, Found]]:
    """Return the policies and profiles in files, each with the name of its file.

    Raises:
        InputError: A file cannot be read, or has neither a policy nor profiles.
    """
    texts: list[tuple[str, Found]] = []
    for name in filter(None, (policy_file, profile_file)):
        try:
            texts += [(shown_name(name), text) for text in read_policy_file(read_text(name))]
        except PolicyError as error:
            _fail(shown_name(name), error)
    return texts


def policy_config_maps(objects: Iterable[Value]) -> Iterator[Value]:
    """Yield the ConfigMaps with policies or profiles among objects."""
    homes = {(home.namespace, home.name) for home in _KINDS}
    for value in objects:
        if value.need("kind").plain != "ConfigMap" or not value.child("data"):
            continue
        metadata = value.need("metadata").mapping()
        if (metadata.get("namespace"), metadata.get("name")) in homes:
            yield value


def stored_policies(objects: Iterable[Value]) -> Iterator[tuple[str, Found]]:
    """Yield the policies and profiles in ConfigMaps, each with the name of its file."""
    for value in policy_config_maps(objects):
        metadata, data = value.need("metadata").mapping(), value.need("data")
        for home, kind in _KINDS.items():
            text = data.child(home.key)
            named = (metadata.get("namespace"), metadata.get("name"))
            # An empty text sets nothing.
            if named == (home.namespace, home.name) and text and text.plain != "":
                yield value.file, Found(kind, text.text(), embedded(text.document, text.path))


def stored_policy(config_maps: tuple[Value, ...]) -> PolicySnapshot:
    """Return the policy of the ConfigMaps of a cluster.

    Raises:
        InputError: A text is wrong; with its line.
    """
    return policy_snapshot(stored_policies(config_maps))


def policy_snapshot(texts: Iterable[tuple[str, Found]]) -> PolicySnapshot:
    """Return the policy of these texts; of two texts of one kind the later one counts.

    Raises:
        InputError: A text is wrong; with its line.
    """
    policy, profiles, plugin = Policy(), Profiles(), dict[str, PluginConfig]()
    for file, text in texts:
        try:
            match text.kind:
                case Kind.POLICY:
                    policy = parse_policy(text.text, at=text.at)
                case Kind.PROFILES:
                    profiles = parse_profiles(text.text, at=text.at)
                case Kind.SHARING:
                    plugin[text.name] = parse_plugin_config(text.text, at=text.at)
        except PolicyError as error:
            _fail(file, error)
    if plugin:
        groups = (*policy.sharing.groups, *plugin_groups(plugin))
        sharing = policy.sharing.model_copy(update={"groups": groups})
        policy = policy.model_copy(update={"sharing": sharing})
    return PolicySnapshot(policy, profiles)


def _fail(file: str, error: PolicyError) -> NoReturn:
    first, *others = error.problems
    path = f"{first.path}: " if first.path else ""
    more = f" ({len(others)} more: linkwise policy lint {file})" if others else ""
    raise InputError(f"{file}:{first.line}: {path}{first.message}; {first.fix}.{more}") from None
