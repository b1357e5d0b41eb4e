"""Nodes are judged by the pods that are there as kube-scheduler judges them.

The model here is written from its sources: kubernetes v1.37, `podtopologyspread` and
`interpodaffinity`, pod by pod and node by node.
"""

from collections import Counter

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.builders import a_node, a_pod, a_snapshot

from linkwise.cluster import keys
from linkwise.cluster.account.node_ledger import Holding
from linkwise.cluster.nodes.node import Taint
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.objects.selector import node_matches
from linkwise.cluster.requests.neighbors.namespaces import neighbor_with_namespaces, selecting
from linkwise.cluster.requests.neighbors.neighbor import (
    LABELS_MAX,
    REPELS_MAX,
    VALUES_MAX,
    neighbor_of,
)
from linkwise.planning.gang.pod_namespaces import member_with_namespaces
from linkwise.planning.placement.filtering.neighbors import judge
from linkwise.planning.placement.pods.member import new_member
from linkwise.planning.placement.state.node_cache import DeadlineExceeded

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
HOST, ZONE = "kubernetes.io/hostname", "zone"
NODES = [
    {HOST: "n0", ZONE: "a"},
    {HOST: "n1", ZONE: "a"},
    {HOST: "n2", ZONE: "b"},
    {HOST: "n3"},
]
NAMESPACES = ["default", "other"]
TEAM = {"team": "x"}
SELECT = selecting({"default": {}, "other": TEAM, "empty": TEAM})
labels = st.dictionaries(st.sampled_from("ab"), st.sampled_from("xy"), max_size=2)
requirements = st.lists(
    st.one_of(
        st.fixed_dictionaries(
            {
                "key": st.sampled_from("ab"),
                "operator": st.sampled_from(["In", "NotIn"]),
                "values": st.lists(st.sampled_from("xy"), min_size=1, max_size=2),
            }
        ),
        st.fixed_dictionaries(
            {
                "key": st.sampled_from("ab"),
                "operator": st.sampled_from(["Exists", "DoesNotExist"]),
            }
        ),
    ),
    max_size=2,
)
selectors = st.none() | st.fixed_dictionaries(
    {}, optional={"matchLabels": labels, "matchExpressions": requirements}
)
topology = st.sampled_from([HOST, ZONE, "none"])
terms = st.lists(
    st.fixed_dictionaries(
        {"topologyKey": topology, "labelSelector": selectors},
        optional={
            "namespaces": st.lists(st.sampled_from(NAMESPACES), min_size=1, unique=True),
            "namespaceSelector": st.sampled_from(
                [{}, {"matchLabels": {keys.NAMESPACE_NAME: "other"}}, {"matchLabels": TEAM}]
            ),
        },
    ),
    max_size=2,
)
constraints = st.lists(
    st.fixed_dictionaries(
        {
            "topologyKey": topology,
            "labelSelector": selectors,
            "maxSkew": st.integers(1, 2),
            "whenUnsatisfiable": st.sampled_from(["DoNotSchedule", "ScheduleAnyway"]),
        },
        optional={
            "minDomains": st.integers(1, 3),
            "nodeAffinityPolicy": st.sampled_from(["Honor", "Ignore"]),
            "nodeTaintsPolicy": st.sampled_from(["Honor", "Ignore"]),
            "matchLabelKeys": st.just(["a"]),
        },
    ),
    max_size=2,
)


@st.composite
def pods(draw):
    spec = {"topologySpreadConstraints": draw(constraints)}
    affinity = {"podAffinity": {REQUIRED: draw(terms)}, "podAntiAffinity": {REQUIRED: draw(terms)}}
    spec["affinity"] = draw(st.sampled_from([affinity, {**affinity, "podAffinity": {}}]))
    if draw(st.booleans()):
        spec["nodeSelector"] = {ZONE: "a"}
    raw = a_pod({keys.GPU_WHOLE: 1}, labels=draw(labels), **spec)
    raw["metadata"]["namespace"] = draw(st.sampled_from(NAMESPACES))
    return raw


@st.composite
def placed_pods(draw):
    raw = draw(pods())
    if draw(st.booleans()):
        raw["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return draw(st.integers(0, len(NODES) - 1)), raw


def holds(selector, of):
    if selector is None:
        return False
    value = of.get
    for key, wanted in (selector.get("matchLabels") or {}).items():
        if value(key) != wanted:
            return False
    for one in selector.get("matchExpressions") or ():
        key, values = one["key"], one.get("values", ())
        is_held = {
            "In": value(key) in values,
            "NotIn": value(key) not in values,
            "Exists": key in of,
            "DoesNotExist": key not in of,
        }[one["operator"]]
        if not is_held:
            return False
    return True


def selects(term, owner, pod):
    """Return whether a term of one pod selects another pod."""
    namespaces, selector = set(term.get("namespaces") or ()), term.get("namespaceSelector")
    if not namespaces and selector is None:
        namespaces = {owner["metadata"]["namespace"]}
    by_labels = selector is not None and (not selector or pod["metadata"]["namespace"] == "other")
    is_inside = pod["metadata"]["namespace"] in namespaces or by_labels
    return is_inside and holds(term["labelSelector"], pod["metadata"]["labels"])


def affinity_of(pod, kind):
    return pod["spec"]["affinity"].get(kind, {}).get(REQUIRED, [])


def satisfies_affinity(pod, node, placed):
    own = affinity_of(pod, "podAffinity")
    if not own:
        return True
    if any(term["topologyKey"] not in node for term in own):
        return False
    matching = [i for i, other in placed if all(selects(term, pod, other) for term in own)]
    if all(
        any(NODES[i].get(term["topologyKey"]) == node[term["topologyKey"]] for i in matching)
        for term in own
    ):
        return True
    keys_of_own = {term["topologyKey"] for term in own}
    is_first = not any(keys_of_own & NODES[i].keys() for i in matching)
    return is_first and all(selects(term, pod, pod) for term in own)


def is_kept_apart(pod, node, placed):
    def near(key, i):
        return key in node and NODES[i].get(key) == node[key]

    return any(
        near(term["topologyKey"], i) and selects(term, one, another)
        for i, other in placed
        for one, another in ((pod, other), (other, pod))
        for term in affinity_of(one, "podAntiAffinity")
    )


def spread_selector(rule, own):
    selector = rule["labelSelector"]
    if selector is None or not rule.get("matchLabelKeys") or "a" not in own:
        return selector
    extra = {"key": "a", "operator": "In", "values": [own["a"]]}
    return {**selector, "matchExpressions": [*selector.get("matchExpressions", ()), extra]}


def counts_for(pod, rule, keys_of_all, pin):
    """Yield the nodes that count for a constraint."""
    spec = msgspec.convert(pod, Pod).spec
    is_honored = rule.get("nodeAffinityPolicy", "Honor") == "Honor"
    for i, node in enumerate(NODES):
        is_accepted = node_matches(spec, f"n{i}", node) and pin in (None, i)
        is_tolerated = i != 1 or rule.get("nodeTaintsPolicy") != "Honor"
        if keys_of_all <= node.keys() and is_tolerated and (is_accepted or not is_honored):
            yield i


def satisfies_spread(pod, node, placed, *, pin=None):
    rules = pod["spec"]["topologySpreadConstraints"]
    rules = [rule for rule in rules if rule["whenUnsatisfiable"] == "DoNotSchedule"]
    keys_of_all = {rule["topologyKey"] for rule in rules}
    own = pod["metadata"]["labels"]
    if not keys_of_all <= node.keys():
        return False
    for rule in rules:
        key, selector = rule["topologyKey"], spread_selector(rule, own)
        counts = Counter()
        for i in counts_for(pod, rule, keys_of_all, pin):
            counts[NODES[i][key]] += sum(
                place == i
                and not one["metadata"].get("deletionTimestamp")
                and one["metadata"]["namespace"] == pod["metadata"]["namespace"]
                and holds(selector, one["metadata"]["labels"])
                and any(selector.values())
                for place, one in placed
            )
        least = min(counts.values(), default=0)
        if len(counts) < rule.get("minDomains", 1):
            least = 0
        if counts[node[key]] + holds(selector, own) - least > rule["maxSkew"]:
            return False
    return True


def a_cluster(placed):
    taints = (Taint("t", "", "NoSchedule"),)
    nodes = [
        a_node(f"n{i}", labels=own, taints=taints if i == 1 else ()) for i, own in enumerate(NODES)
    ]
    return a_snapshot(*nodes).hold_all(
        (f"n{i}", Holding(f"{pod['metadata']['namespace']}/p{k}", f"p{k}", neighbor=seen(pod)))
        for k, (i, pod) in enumerate(placed)
    )


def seen(raw):
    pod = msgspec.convert(raw, Pod)
    return neighbor_with_namespaces(neighbor_of(pod, pod.metadata.namespace), SELECT)


@settings(max_examples=400, deadline=None)
@given(pod=pods(), placed=st.lists(placed_pods(), max_size=5))
def test_nodes_are_judged_as_kube_scheduler_judges_them(pod, placed):
    snapshot = a_cluster(placed)
    member = member_with_namespaces(new_member(msgspec.convert(pod, Pod), "default"), SELECT)

    masks = [mask for _, mask in judge(snapshot, [member])]

    for i, node in enumerate(NODES):
        if not node_matches(member.pod.spec, f"n{i}", node):
            continue
        fits = (
            satisfies_affinity(pod, node, placed)
            and not is_kept_apart(pod, node, placed)
            and satisfies_spread(pod, node, placed)
            and satisfies_spread(pod, node, placed, pin=i)
        )
        assert any(mask[i] for mask in masks) != fits, (i, pod, placed)
        alone = judge(snapshot.only(f"n{i}"), [member])
        assert any(mask.any() for _, mask in alone) != fits


def a_cluster_of(*placed):
    nodes = [a_node(name, labels={HOST: name}) for name in "ab"]
    return a_snapshot(*nodes).hold_all(
        (node, Holding(f"default/p{k}", f"p{k}", neighbor=seen(pod)))
        for k, (node, pod) in enumerate(placed)
    )


def apart(*wanted):
    term = {"topologyKey": HOST, "labelSelector": {"matchExpressions": list(wanted)}}
    return {"podAntiAffinity": {REQUIRED: [term]}}


def excluded(snapshot, **pod):
    member = new_member(msgspec.convert(a_pod({keys.GPU_WHOLE: 1}, **pod), Pod), "default")
    masks = [mask for _, mask in judge(snapshot, [member])]
    return {
        node.node.name for i, node in enumerate(snapshot.nodes) if any(mask[i] for mask in masks)
    }


def test_pod_whose_labels_are_too_long_to_keep_is_avoided_but_not_followed():
    snapshot = a_cluster_of(("a", a_pod(labels={"app": "x" * LABELS_MAX})))
    term = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "db"}}}

    exists = {"key": "app", "operator": "Exists"}
    assert excluded(snapshot, affinity=apart(exists)) == {"a"}
    assert excluded(snapshot, affinity={"podAffinity": {REQUIRED: [term]}}) == {"a", "b"}


@pytest.mark.parametrize(("values", "kept_away"), [(VALUES_MAX - 1, {"a"}), (VALUES_MAX, set())])
def test_too_large_anti_affinity_of_a_running_pod_is_left_to_kube_scheduler(values, kept_away):
    names = [f"v{i}" for i in range(values - 1)]
    owner = a_pod(affinity=apart({"key": "app", "operator": "NotIn", "values": names}))

    assert excluded(a_cluster_of(("a", owner))) == kept_away


def test_of_a_running_pod_the_first_terms_of_its_anti_affinity_are_kept():
    absent = {"key": "app", "operator": "DoesNotExist"}
    mute = [apart({"key": f"k{i}", "operator": "Exists"}) for i in range(REPELS_MAX)]
    terms = [one["podAntiAffinity"][REQUIRED][0] for one in [*mute, apart(absent)]]
    every, all_but_one = ({"podAntiAffinity": {REQUIRED: one}} for one in (terms, terms[1:]))

    assert excluded(a_cluster_of(("a", a_pod(affinity=all_but_one)))) == {"a"}
    assert excluded(a_cluster_of(("a", a_pod(affinity=every)))) == set()


def test_comparing_a_pod_with_many_terms_ends_with_the_time():
    wanted = [{"key": f"k{i}", "operator": "Exists"} for i in range(9)]
    placed = [("a", a_pod(affinity=apart(one))) for one in wanted]
    snapshot, asked = a_cluster_of(*placed), []
    assert excluded(snapshot) == set()

    def is_over():
        asked.append(None)
        return len(asked) > len(wanted)

    with snapshot.cache.deadline(is_over), pytest.raises(DeadlineExceeded):
        excluded(snapshot)
