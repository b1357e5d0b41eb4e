"""The results of a simulation by unit: node and GPUs, bandwidth, and reasons."""

from collections.abc import Hashable, Iterable, Sequence

from linkwise.cluster.allocations.gpus import Counted, GPUs
from linkwise.cluster.requests.request import Family, Request
from linkwise.planning.placement.explain import PlanExplanation, explain_plan
from linkwise.planning.placement.result import Placement, Plan
from linkwise.planning.placement.state.snapshot import Snapshot
from linkwise.topology.explain import Explanation
from linkwise.views.output.printer import sentence
from linkwise.views.output.words import plural
from linkwise.views.render.page.bandwidth import bandwidth
from linkwise.views.render.page.markup import Markup, element, folded, name, together
from linkwise.views.render.page.occupancy import Unit

MEMBERS = 8
"""The number of members, and of nodes, that are not folded."""
PODS = 40
"""The number of rows of single pods that are not folded."""
CARDS = 20
"""The number of gangs that are not folded, of those that wait and of those that are placed."""
OPEN = 6
"""Up to this many gangs, the details of each are shown at first."""


def unit_sections(units: Sequence[Unit]) -> Markup:
    """Return a card for each large unit and a list of single pods; what waits is first."""
    waiting = [unit for unit in units if unit.result.plan is None]
    placed = [unit for unit in units if unit.result.plan is not None]
    large = sum(map(_is_large, units))
    return together(
        _search() if len(units) > OPEN else None,
        _section("Waiting", _cards(waiting, is_open=large <= OPEN), _list(waiting)),
        _section("Gangs, and pods with several GPUs", _cards(placed, is_open=large <= OPEN)),
        _section("Single pods", _list(placed)),
    )


def _section(title: str, *parts: Markup | None) -> Markup | None:
    """Return a section of results; None without any."""
    if not any(parts):
        return None
    return element("section", element("h2", title), parts, class_="results")


def _search() -> Markup:
    """Return the search for units, which the script shows."""
    hint = "gang, pod, namespace, node"
    search = element("input", type="search", id="find-unit", placeholder=hint)
    return element(
        "div",
        element("label", "Search the results", search),
        element("span", "", id="unit-count", class_="quiet small", role="status"),
        class_="controls",
        id="unit-search",
        hidden=True,
    )


def _cards(units: Sequence[Unit], *, is_open: bool) -> Markup:
    cards = [_card(unit, is_open=is_open) for unit in units if _is_large(unit)]
    return together(cards[:CARDS], _more(cards[CARDS:], "gangs or pods"))


def _list(units: Sequence[Unit]) -> Markup | None:
    pods = [_pods(group) for group in _alike(unit for unit in units if not _is_large(unit))]
    return element("div", _first(pods, PODS, "pods"), class_="card") if pods else None


def _more(items: Sequence[Markup], noun: str, *, tag: str = "div") -> Markup | None:
    """Return items that are folded; the search unfolds them."""
    if not items:
        return None
    summary = element("summary", f"{len(items):,} more {noun}")
    inner = element(tag, items, class_="rows" if tag == "ul" else None)
    return element("details", summary, inner, class_="more fold")


def _is_large(unit: Unit) -> bool:
    return unit.result.is_gang or unit.result.members[0].gpus > 1


def _alike(pods: Iterable[Unit]) -> Iterable[list[Unit]]:
    """Return single pods; those that wait for one reason as one group, of up to thousands."""
    groups: dict[Hashable, list[Unit]] = {}
    for unit in pods:
        result = unit.result
        waits = result.namespace, result.members[0].request, result.reason, result.never
        groups.setdefault(id(unit) if result.plan else waits, []).append(unit)
    return groups.values()


def _first(items: Sequence[Markup], most: int, noun: str) -> Markup:
    """Return a list in which all items after the first `most` are folded."""
    shown, rest = items[:most], items[most:]
    return together(
        element("ul", shown, class_="rows"),
        _more(rest, noun, tag="ul"),
    )


def _head(unit: Unit, facts: Sequence[str | Markup]) -> Markup:
    placed = unit.result.plan is not None
    waits = "✕ never fits" if unit.result.never else "✕ waits"
    words, kind = ("✓ placed", "good") if placed else (waits, "bad")
    return element(
        "div",
        element("span", unit.letters, class_=f"chip u{unit.colour}"),
        element("h3", name(unit.result.name)),
        element("span", facts, class_="quiet small"),
        element("span", words, class_=f"status {kind}"),
        class_="head",
    )


def _card(unit: Unit, *, is_open: bool) -> Markup:
    result = unit.result
    size = len(result.members)
    asks = " or ".join(dict.fromkeys(request_text(member.request) for member in result.members))
    kind = f"gang of {size:,}, {asks} each" if result.is_gang else f"pod, {asks}"
    facts = [f"{kind} · namespace ", name(result.namespace)]
    if result.plan is None:
        reason = element("p", sentence(result.reason or ""), class_="reason small")
        card = element("div", _head(unit, facts), reason, _waiting(unit), class_="card")
        return element("article", card, class_="unit")
    bandwidth = result.plan.bandwidth.value
    facts += [f" · {bandwidth:.1f} GB/s"] if bandwidth else []
    details = element(
        "details",
        element("summary", _head(unit, facts)),
        element("div", _placed(unit, result.plan), class_="inside"),
        class_="card row",
        open=is_open,
    )
    return element("article", details, class_="unit")


def request_text(request: Request) -> str:
    """Return what a pod asks for as text.

    >>> request_text(Request(Family.SHARE, gpus=1, memory=3, core=30))
    '3 GiB and 30 %'
    """
    n = request.gpus
    if request.family is Family.SHARE:
        core = f" and {request.core} %" if request.core else ""
        return f"{request.memory} GiB{core}{f' over {n} cards' if n > 1 else ''}"
    return f"{n} {plural('replica' if request.family is Family.REPLICA else 'GPU', n)}"


def _waiting(unit: Unit) -> Markup | None:
    best = unit.result.best_possible.value
    if best is None:
        return None
    empty = f"On the empty cluster it would get {best:.1f} GB/s."
    return element("p", empty, class_="quiet small note")


def _placed(unit: Unit, plan: Plan) -> Markup:
    explanation = explain_plan(unit.result.seen, plan)
    return element(
        "div",
        element(
            "div",
            _first([_node(plan, node) for node in plan.gpus], MEMBERS, "nodes"),
            _reasons(unit.result.seen, explanation),
            _members(unit, plan) if unit.result.is_gang else None,
        ),
        bandwidth(unit.result, plan),
        class_="halves",
    )


def _node(plan: Plan, node: str) -> Markup:
    count = plan.counts.get(node)
    gpus = _counted(count) if count else _named(plan.gpus[node])
    return element("li", element("b", name(node)), element("span", gpus, class_="where"))


def _gpus(gpus: GPUs) -> str:
    return _counted(gpus.number) if isinstance(gpus, Counted) else _named(gpus.indices)


def _counted(number: int) -> str:
    return f"{number} {plural('GPU', number)}, chosen by NVIDIA's plugin"


def _named(indices: Sequence[int]) -> str:
    return f"{plural('GPU', len(indices))} {' '.join(map(str, indices))}"


def _reasons(seen: Snapshot, explanation: PlanExplanation) -> Markup:
    known = [node for node in explanation.gpus if seen.ledger.nodes[node].node.machine_known]
    explained = [_explained(node, explanation.gpus[node]) for node in known]
    return element(
        "div",
        element("p", sentence(explanation.nodes)),
        explained[:1],
        (element("p", sentence(f"note: {note}"), class_="quiet") for note in explanation.notes),
        folded("Why these GPUs on the other nodes", explained[1:]) if explained[1:] else None,
        class_="why",
    )


def _explained(node: str, choice: Explanation) -> Markup:
    free = _named(choice.free_after.gpus) if choice.free_after else "none"
    reason = f": {sentence(choice.reason)} It leaves {free} free."
    return element("p", name(node), reason, class_="quiet")


def _members(unit: Unit, plan: Plan) -> Markup:
    rows = [_member(unit, i, placement) for i, placement in enumerate(plan.placements)]
    order = ", in the order of ranks" if len(rows) > 1 else ""
    heads = (element("th", text, scope="col") for text in ("", "Member", "Node", "GPUs"))
    table = element("table", element("thead", element("tr", heads)), element("tbody", rows))
    return folded(
        f"{len(rows):,} {plural('member', len(rows))}{order}", table, is_open=len(rows) <= MEMBERS
    )


def _member(unit: Unit, number: int, placement: Placement) -> Markup:
    chip = element("span", unit.tag(number), class_=f"chip u{unit.colour}")
    own = placement.member.name.partition("/")[2]
    cells = (chip, name(own), name(placement.node), _gets(placement))
    return element("tr", (element("td", cell) for cell in cells))


def _gets(placement: Placement) -> str:
    share = placement.member.request.family is Family.SHARE
    amount = f"{request_text(placement.member.request)} of " if share else ""
    return f"{amount}{_gpus(placement.gpus)}"


def _pods(group: Sequence[Unit]) -> Markup:
    unit, rest = group[0], group[1:]
    result = unit.result
    facts = [request_text(result.members[0].request), " · namespace ", name(result.namespace)]
    for placement in result.plan.placements if result.plan else ():
        where = (name(placement.node), f", {_gpus(placement.gpus)}")
        facts = [element("span", where, class_="ink"), " · ", *facts]
    reason = element("p", sentence(result.reason), class_="small") if result.reason else None
    others = [(" ", name(other.result.name)) for other in rest]
    more = folded(f"{len(rest):,} more wait for the same reason", others) if rest else None
    return element("li", _head(unit, facts), reason, more, class_="unit")
