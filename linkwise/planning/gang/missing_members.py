"""Name the missing members of a gang, as far as their names are known."""

import re
from collections.abc import Collection, Iterator
from itertools import islice

from linkwise.workloads.members import ExpectedPods

_SHOWN = 3
_NUMBERED = re.compile(r"(.+)-([0-9]{1,6})")


def assembling(names: Collection[str], needed: int, expected: ExpectedPods | None) -> str:
    """Return how many members exist and which are missing: a few names and the number of others.

    Args:
        names: Of the existing members, fewer than are needed.
        needed: How many the gang needs.
        expected: The pods that their owner makes, if known.
    """
    present = set(names)
    lacking = needed - len(names)
    is_known = expected and expected.parts
    missing = _declared(present, needed, expected) if expected and is_known else _between(present)
    shown = list(islice(missing, min(_SHOWN, lacking)))
    more = f" and {lacking - len(shown)} more" if lacking > len(shown) else ""
    names_shown = f"; missing: {', '.join(shown)}{more}" if shown else ""
    return f"{len(names)} of {needed} members{names_shown}"


def _declared(present: set[str], needed: int, expected: ExpectedPods) -> Iterator[str]:
    """Yield the names of the missing pods that their owner makes."""
    counts = dict(expected.parts)
    numbered = [_NUMBERED.fullmatch(name) for name in present]
    known = all(found and int(found[2]) < counts.get(found[1], 0) for found in numbered)
    if not known or sum(counts.values()) + bool(expected.late_launcher) != needed:
        # They have other names; or not all are needed, so it is unknown which come next.
        return
    for stem, count in expected.parts:
        yield from (name for i in range(count) if (name := f"{stem}-{i}") not in present)


def _between(present: set[str]) -> Iterator[str]:
    """Yield the names that are missing in a sequence of numbered names."""
    numbered = [_NUMBERED.fullmatch(name) for name in present]
    stems = {found[1] for found in numbered if found}
    if len(stems) != 1 or not all(numbered):
        return
    (stem,) = stems
    last = max(int(found[2]) for found in numbered if found)
    yield from (name for i in range(last) if (name := f"{stem}-{i}") not in present)
