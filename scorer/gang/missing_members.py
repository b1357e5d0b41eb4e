"""Which members of a gang are not there yet, as far as it is known what they are called."""

import re
from collections.abc import Collection, Iterator
from itertools import islice

from scorer.gang.owners import ExpectedPods

_SHOWN = 3
_NUMBERED = re.compile(r"(.+)-([0-9]{1,6})")


def assembling(names: Collection[str], needed: int, makes: ExpectedPods | None) -> str:
    """Say how many members there are, and who is missing: a few names, then how many more.

    Args:
        names: Of the members that are there, fewer than are needed.
        needed: How many there must be.
        makes: What is known of who makes them.
    """
    there = set(names)
    lacking = needed - len(there)
    missing = _declared(there, needed, makes) if makes and makes.parts else _between(there)
    shown = list(islice(missing, min(_SHOWN, lacking)))
    more = f" and {lacking - len(shown)} more" if lacking > len(shown) else ""
    who = f"; missing: {', '.join(shown)}{more}" if shown else ""
    return f"{len(there)} of {needed} members{who}"


def _declared(there: set[str], needed: int, makes: ExpectedPods) -> Iterator[str]:
    """Yield the names of the pods that their owner makes and that are not there."""
    counts = dict(makes.parts)
    numbered = [_NUMBERED.fullmatch(name) for name in there]
    known = all(found and int(found[2]) < counts.get(found[1], 0) for found in numbered)
    if not known or sum(counts.values()) != needed:
        # They are called otherwise; or not all are needed, and whoever comes next is one of them.
        return
    for stem, count in makes.parts:
        yield from (name for i in range(count) if (name := f"{stem}-{i}") not in there)


def _between(there: set[str]) -> Iterator[str]:
    """Yield the names that are left out in a row of numbered ones."""
    numbered = [_NUMBERED.fullmatch(name) for name in there]
    stems = {found[1] for found in numbered if found}
    if len(stems) != 1 or not all(numbered):
        return
    (stem,) = stems
    last = max(int(found[2]) for found in numbered if found)
    yield from (name for i in range(last) if (name := f"{stem}-{i}") not in there)
