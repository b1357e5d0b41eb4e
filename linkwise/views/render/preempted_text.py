"""The text about units that would be evicted for another one."""

from collections.abc import Sequence

from linkwise.cluster.whatif_api import Preempted
from linkwise.views.output.printer import WARNING, Paint, cut, say, say_rest
from linkwise.views.output.words import plural


def show_preempted(units: Sequence[Preempted], others: int = 0) -> None:
    """Write each unit that would be evicted, with its pods and the GPU time that it loses.

    Args:
        units: The units.
        others: The number of those of other namespaces that are not named.
    """
    shown = cut(units)
    for unit in shown:
        say(" ", Paint("would preempt", WARNING), preempted_text(unit))
    say_rest(len(units) - len(shown))
    if others:
        unnamed = f"{others} {plural('unit', others)} of other namespaces"
        say(" ", Paint("would preempt", WARNING), unnamed)


def preempted_text(unit: Preempted) -> str:
    """Return a unit in words, with what its eviction loses.

    >>> preempted_text(Preempted(kind="gang", namespace="team-b", name="nightly", pods=8,
    ...                          running_seconds=11400, gpu_hours=25.3))
    'gang team-b/nightly: 8 pods, running 3 h 10 min, 25 GPU h'
    """
    facts = [f"{unit.pods} {plural('pod', unit.pods)}"] if unit.kind == "gang" else []
    if unit.running_seconds:
        hours = f"{unit.gpu_hours:.0f}" if unit.gpu_hours >= 10 else f"{unit.gpu_hours:g}"
        facts += [f"running {_duration(unit.running_seconds)}", f"{hours} GPU h"]
    name = f"{unit.kind} {unit.namespace}/{unit.name}"
    return f"{name}: {', '.join(facts)}" if facts else name


def _duration(seconds: int) -> str:
    """Return a time in hours and minutes.

    >>> _duration(40), _duration(3600), _duration(11400)
    ('1 min', '1 h 0 min', '3 h 10 min')
    """
    hours, minutes = divmod(max(1, round(seconds / 60)), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
