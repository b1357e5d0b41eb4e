"""The views of one feed by the parameters of a request, now or at an earlier moment."""

from collections.abc import Callable, Mapping, Sequence

from linkwise.cluster.account.slots import SIZES, FreeDomains, SlotGroup, free_domains, free_slots
from linkwise.dashboard.earlier import earlier_ledgers, earlier_node, earlier_unit
from linkwise.dashboard.feed import Feed
from linkwise.dashboard.gang_changes import Past
from linkwise.dashboard.history import Sample
from linkwise.dashboard.namespaces import namespace_rows
from linkwise.dashboard.node_view import node_view
from linkwise.dashboard.unit_view import unit_views, waiting_view
from linkwise.views.analysis.fleet import usage_of

UNITS = 200
"""The number of units that waited at an earlier time which the page gets."""

Query = Mapping[str, str]


class Views:
    """The views of one feed; each takes the state now, and returns what computes its document."""

    def __init__(self, feed: Feed) -> None:
        """Show a feed."""
        self._feed = feed

    def node(self, query: Query) -> Callable[[], object]:
        """One node."""
        moment, name = self._feed.moment, query.get("name", "")
        if "at" not in query:
            return lambda: node_view(moment, name)
        row = self._feed.history.at(_time(query)).get(name)
        now = moment.current.cluster.ledger.nodes
        return lambda: earlier_node(row, now) if row else None

    def waiting(self, _: Query) -> Callable[[], object]:
        """The pending units."""
        moment = self._feed.moment
        return lambda: waiting_view(moment)

    def unit(self, query: Query) -> Callable[[], object]:
        """A gang or a pod."""
        moment, history = self._feed.moment, self._feed.history
        kind, namespace = query.get("kind", "gang"), query.get("namespace", "")
        name = query.get("name", "")
        if "at" not in query:
            past = Past(history.rows, history.changes)
            return lambda: unit_views(moment, past, kind, namespace, name) or None
        at, key, now = _time(query), (kind, namespace, name), moment.current.cluster.ledger.nodes
        then = Past(history.at(at), tuple(each for each in history.changes if each.at <= at))
        waited = history.waiting_at(at)
        unit = next((u for u in waited if (u.kind, u.namespace, u.name) == key), None)
        return lambda: earlier_unit(then, unit, now, key)

    def namespaces(self, query: Query) -> Callable[[], object]:
        """The GPUs of namespaces, and their GPU time until then."""
        moment, history = self._feed.moment, self._feed.history
        since = history.window(self._feed.now)
        if "at" not in query:
            rows = namespace_rows(moment.usage, history.gpu_seconds(since, self._feed.now))
            return lambda: {"since": since, "rows": rows}
        at, now = _time(query), moment.current.cluster.ledger.nodes
        then, seconds = history.at(at), history.gpu_seconds(since, at)

        def earlier() -> object:
            usage = usage_of(earlier_ledgers(then, now))
            return {"since": since, "rows": namespace_rows(usage, seconds)}

        return earlier

    def past(self, query: Query) -> Callable[[], object]:
        """The map and the pending units of an earlier moment."""
        history, at = self._feed.history, _time(query)
        rows, waiting = list(history.at(at).values()), history.waiting_at(at)
        units = {"count": len(waiting), "first": waiting[:UNITS]}
        return lambda: {"at": at, "nodes": rows, "waiting": units}

    def samples(self, _: Query) -> Callable[[], object]:
        """The totals of the last hour."""
        samples = list(self._feed.history.samples)
        return lambda: samples

    def sets(self, query: Query) -> Callable[[], object]:
        """The free sets of GPUs."""
        moment, history = self._feed.moment, self._feed.history
        samples = list(history.samples)
        if "at" not in query:
            return lambda: _sets(moment.slots, moment.domains, samples)
        at, now = _time(query), moment.current.cluster.ledger.nodes
        rows, until = history.at(at), [each for each in samples if each.at <= at]
        labels = moment.current.policy.policy.gangs.domains

        def earlier() -> object:
            ledgers = list(earlier_ledgers(rows, now))
            return _sets(free_slots(ledgers), free_domains(ledgers, labels), until)

        return earlier


def _sets(
    groups: Sequence[SlotGroup], domains: Sequence[FreeDomains], samples: Sequence[Sample]
) -> object:
    return {"groups": groups, "domains": domains, "sizes": SIZES, "samples": samples}


def _time(query: Query) -> float:
    """Return the moment that a request names [s since 1970]; 0, before all, if it is no number."""
    text = query.get("at", "")
    return float(text) if text.replace(".", "", 1).isdecimal() and len(text) < 30 else 0.0
