"""Requirements of the members of a group of each other, by affinity, anti-affinity and spread.

The frequent rules limit the number of members of a node, or tie all members to one domain; then the
group is planned as any other. Others depend on the order in which members are placed.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from linkwise.cluster.keys import HOSTNAME
from linkwise.cluster.requests.neighbors.rules import PodTerm
from linkwise.planning.placement.filtering.neighbors import has_affine
from linkwise.planning.placement.filtering.spread import spread_room
from linkwise.planning.placement.pods.group import Coupling, Group
from linkwise.planning.placement.pods.member import Member
from linkwise.planning.placement.state.node_columns import Ints
from linkwise.planning.placement.state.snapshot import Snapshot

KINDS_MAX = 16
"""Kinds of members that are compared with each other: more of them are placed in turn."""


@dataclass(slots=True)
class _Findings:
    """What the rules of the kinds of members say."""

    rooms: list[Ints]
    together: dict[str, None]
    words: dict[str, None]
    keys: set[str]
    is_coupled: bool = False
    is_complete: bool = True


def coupling_of(snapshot: Snapshot, group: Group) -> Coupling | None:
    """Return what the members require of each other; None: nothing.

    Cost: that of `judge`; nothing for members without rules.
    """
    if group.size == 1 or not snapshot.nodes or not any(one.rules for one in group.members):
        return None
    kinds = _kinds(group)
    if len(kinds) > KINDS_MAX:
        return Coupling(words="its pods are placed in turn, by their affinity and topology spread")
    found = _Findings([], {}, {}, set())
    _read_apart(snapshot, kinds, found)
    for kind in kinds:
        _read_affinity(snapshot, kind, kinds, found)
        _read_spread(snapshot, kind, kinds, found)
    if not found.is_coupled:
        return None
    room = np.stack(found.rooms).min(axis=0) if found.rooms else None
    return Coupling(
        room,
        tuple(found.together),
        is_complete=found.is_complete,
        is_by_node=found.keys <= {HOSTNAME},
        words="; ".join(found.words),
    )


def _kinds(group: Group) -> list[Member]:
    """Return one member of each kind that the rules of the members tell apart."""
    rules = {member.rules: None for member in group.members}
    read = frozenset[str]().union(*(p.selector.keys for each in rules for p in each.pods))
    kinds: dict[Hashable, Member] = {}
    for member in group.members:
        known = member.neighbor.labels or {}
        labels = tuple((key, known[key]) for key in sorted(read & known.keys()))
        kinds.setdefault((member.rules, member.neighbor.namespace, labels), member)
    return list(kinds.values())


def _read_apart(snapshot: Snapshot, kinds: Sequence[Member], found: _Findings) -> None:
    keys = [_keys_apart(a, b) for a, b in product(kinds, kinds)]
    if not any(keys):
        return
    found.is_coupled = True
    found.keys |= set().union(*keys)
    if all(HOSTNAME in each for each in keys):
        found.rooms.append(np.ones(len(snapshot.nodes), dtype=np.int64))
        found.words["no two of its pods may be on one node by their anti-affinity"] = None
    found.is_complete &= all(each == {HOSTNAME} for each in keys)
    for key in sorted(set().union(*keys) - {HOSTNAME}):
        found.words[f"its pods have anti-affinity by {key}"] = None


def _keys_apart(one: Member, other: Member) -> set[str]:
    """Return the labels whose value two members must not share."""
    return {
        term.key
        for a, b in ((one, other), (other, one))
        for term in a.rules.anti_affinity
        if b.neighbor.may_be_in(term.pods)
    }


def _read_affinity(
    snapshot: Snapshot, kind: Member, kinds: Sequence[Member], found: _Findings
) -> None:
    terms = kind.rules.affinity
    if not any(_selects(term, other) for term in terms for other in kinds):
        return
    # Where such pods run already, the members go to them, and tie no other node.
    if has_affine(snapshot, kind):
        return
    found.is_coupled = True
    found.keys |= {term.key for term in terms}
    found.is_complete &= all(_selects(term, other) for term in terms for other in kinds)
    if all(other.rules.affinity or any(_selects(t, other) for t in terms) for other in kinds):
        found.together |= {term.key: None for term in terms}
    keys = ", ".join(dict.fromkeys(term.key for term in terms))
    found.words[f"its pods must share the value of {keys} by their affinity"] = None


def _selects(term: PodTerm, member: Member) -> bool:
    return member.neighbor.is_in(term.pods)


def _read_spread(
    snapshot: Snapshot, kind: Member, kinds: Sequence[Member], found: _Findings
) -> None:
    rules = kind.rules.spread
    own = [rule for rule in rules if any(other.neighbor.is_in(rule.pods) for other in kinds)]
    if not own:
        return
    found.is_coupled, found.is_complete = True, False
    found.keys |= {rule.key for rule in own}
    keys = ", ".join(dict.fromkeys(rule.key for rule in own))
    found.words[f"its pods are spread over the values of {keys}"] = None
    room = spread_room(snapshot, kind)
    if room is not None:
        found.rooms.append(room)
