import re
from base64 import b64encode
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import sha256
from html.parser import HTMLParser

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import a_node, a_pod, a_snapshot
from support.fleet_map import the_map

from linkwise.admission.decide.outcome import Outcome, Verdict
from linkwise.cluster import keys
from linkwise.cluster.allocations.gpus import Counted, GPUShare
from linkwise.cluster.finding import Code, Finding, Severity
from linkwise.cluster.nodes.node import MachineSource, Node
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.requests.request_reader import read_request
from linkwise.policy.profile import Trace
from linkwise.topology.catalogue import entry
from linkwise.views.analysis.simulation import AdmittedPod, Simulation, simulate
from linkwise.views.render.page.assets import SCRIPT
from linkwise.views.render.page.caption import Caption
from linkwise.views.render.page.simulation import simulation_page as render_page

VOID = {"input", "meta"}
FINDING = Finding(
    Code.CORE_STEP,
    Severity.ERROR,
    "spec.containers[0].resources.limits[aliyun.com/gpu-core.percentage]",
    22,
    "22 is not allowed: compute is a multiple of 5",
    "write 20 or 25",
)


@dataclass
class Element:
    tag: str
    attributes: dict[str, str | None]
    children: list["Element | str"] = field(default_factory=list)

    def all(self, tag: str, class_: str = "") -> list["Element"]:
        """Return every element below with this tag and class, in the order of the document."""
        matches = []
        for child in self.children:
            if isinstance(child, Element):
                classes = (child.attributes.get("class") or "").split()
                if child.tag == tag and (not class_ or class_ in classes):
                    matches.append(child)
                matches += child.all(tag, class_)
        return matches

    @property
    def text(self) -> str:
        parts = (child if isinstance(child, str) else child.text for child in self.children)
        return "".join(parts)


class Reader(HTMLParser):
    """Reads a page into elements, and minds that each is closed where it should be."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Element("", {})
        self.open = [self.root]

    def handle_starttag(self, tag, attrs):
        element = Element(tag, dict(attrs))
        assert len(attrs) == len(element.attributes), f"an attribute of {tag} stands twice"
        self.open[-1].children.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag):
        assert self.open.pop().tag == tag

    def handle_data(self, data):
        self.open[-1].children.append(data)


def render(simulation: Simulation, title: str) -> str:
    return render_page(simulation, Caption((title,), 0, ("job.yaml",)))


def read(page: str) -> Element:
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == [reader.root]
    return reader.root


def an_applicant(
    name: str, limits: dict[str, object], *, findings=(), denied=False, profiles=(), **pod
) -> AdmittedPod:
    read_pod = msgspec.convert(a_pod(limits, name=name, **pod), Pod)
    request = read_request(read_pod)[0]
    verdict = Verdict.DENIED if denied else Verdict.ALLOWED
    outcome = Outcome(verdict, findings=findings, request=request, profiles=profiles)
    return AdmittedPod(read_pod, "default", outcome)


def a_gang(size: int, name: str = "vgg16", gpus: int = 1) -> list[AdmittedPod]:
    annotations = {keys.GANG: name, keys.GANG_SIZE: str(size)}
    return [
        an_applicant(f"{name}-worker-{i}", {keys.GPU_WHOLE: gpus}, annotations=annotations)
        for i in range(size)
    ]


def a_cluster_node(name: str, machine: str, mode: str = "topology", **fields) -> Node:
    return a_node(name, entry(machine).machine, mode, **fields)


@cache
def two_dgx() -> Simulation:
    nodes = [a_cluster_node(f"dgx-{i}", "dgx1-v100") for i in range(2)]
    snapshot = a_snapshot(*nodes, taken={"dgx-0": (0, 3), "dgx-1": (2, 4, 7)})
    return simulate(
        snapshot,
        [
            an_applicant("vgg16-launcher", {"cpu": "1"}),
            *a_gang(4),
            an_applicant("notebook", {keys.GPU_WHOLE: 1}, findings=(FINDING,), denied=True),
        ],
    )


@cache
def sharing() -> Simulation:
    share = a_cluster_node("share-0", "t4x4", "core_mem", card_memory=15, unhealthy=(3,))
    slices = a_cluster_node("slices-0", "t4x4", "timeslice")
    plain = a_cluster_node("plain-0", "t4x4", "default")
    held = [GPUShare(0, mem=3, core=20), GPUShare(3, mem=4, core=25)]
    snapshot = a_snapshot(share, slices, plain, shares={"share-0": held})
    part = {keys.GPU_MEM: 2, keys.GPU_CORE: 30}
    return simulate(
        snapshot,
        [
            *(an_applicant(f"cuda-{i}", part) for i in range(3)),
            an_applicant("sliced", {keys.NVIDIA_GPU_SHARED: 1}),
            an_applicant("plugin", {keys.NVIDIA_GPU: 2}),
        ],
    )


@cache
def mixed() -> Simulation:
    """Return a gang over several kinds of nodes, one of them unknown."""
    machines = ("dgx-h100", "rtx8000x4", "dgx2", "l4x8", "a100x8-bridges", "gh200x4", "dgx1-p100")
    nodes = [a_cluster_node(name, name, unhealthy=(1,), cordoned=(2,)) for name in machines]
    uniform = a_node("unknown", entry("rtx4090x8").machine, machine_source=MachineSource.UNKNOWN)
    snapshot = a_snapshot(*nodes, uniform, taken=dict.fromkeys(machines, (0,)))
    return simulate(snapshot, [*a_gang(20), *a_gang(90, "huge"), *a_gang(2, "pair", 2)])


@cache
def unknown() -> Simulation:
    uniform = a_node("unknown", entry("rtx4090x8").machine, machine_source=MachineSource.UNKNOWN)
    return simulate(a_snapshot(uniform), [*a_gang(8)])


@pytest.mark.parametrize("source", MachineSource)
def test_page_says_where_the_links_of_a_node_are_from(source):
    node = a_node("a", machine_source=source)
    page = render(simulate(a_snapshot(node), a_gang(2)), "t")

    assert f"The links of these GPUs are {source.words}." in page


CASES = {
    "two nodes": two_dgx,
    "shares": sharing,
    "many kinds of machines": mixed,
    "unknown machine": unknown,
    "nothing": lambda: simulate(a_snapshot(), []),
}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@every_case
def test_the_page_is_whole_and_made_alike_each_time(case):
    page = render(case(), "linkwise simulate")

    assert read(page).all("title")[0].text == "linkwise simulate"
    assert render(case(), "linkwise simulate") == page


@every_case
def test_the_page_loads_nothing_and_runs_its_own_script_alone(case):
    page = render(case(), "linkwise simulate")

    assert not re.search(r"https?:|//|@import|javascript:|data:", page.replace("<!doctype", ""))
    assert set(re.findall(r"url\(([^)]*)\)", page)) <= {"#hatch"}
    root = read(page)
    scripts = [one for one in root.all("script") if one.attributes["type"] == "module"]
    assert [one.text for one in scripts] == [str(SCRIPT)]
    for tag in ("link", "img", "iframe", "object", "image", "use", "foreignobject"):
        assert not root.all(tag), tag
    assert all(a.attributes["href"].startswith("#") for a in root.all("a"))
    policy = [meta.attributes.get("content") for meta in root.all("meta")]
    digest = b64encode(sha256(scripts[0].text.encode()).digest()).decode()
    assert policy[1] == (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    )


@every_case
def test_every_gpu_and_every_holder_stands_on_the_map(case):
    simulation = case()
    if not simulation.after.nodes:
        assert "No node of this cluster has GPUs." in render(simulation, "t")
        return

    shown = the_map(render(simulation, "t"))

    nodes = {row[0]: row for row in shown["rows"]}
    for ledger in simulation.after.nodes:
        node = nodes[ledger.node.name]
        assert len(node[5]) == len(ledger.node.cards)
        held = {holder[0]: holder[2] for holder in node[11]}
        assert held == {
            holding.pod: sorted({share.i for share in holding.gpus.shares})
            for holding in ledger.holdings.values()
            if holding.gpus
        }


@every_case
def test_drawn_nodes_name_the_holder_of_each_gpu(case):
    simulation = case()
    root = read(render(simulation, "t"))

    shown = {node.all("h3")[0].all("bdi")[0].text: node for node in root.all("details", "node")}

    for name, node in shown.items():
        ledger = simulation.after.ledger.nodes[name]
        rows = node.all("table")[0].all("tbody")[0].all("tr")
        assert [row.all("th")[0].text for row in rows] == [
            f"GPU{i}" for i in range(len(ledger.node.cards))
        ]
        for holding in ledger.holdings.values():
            for share in holding.gpus.shares:
                assert holding.pod in rows[share.i].text
            if isinstance(holding.gpus, Counted):
                assert holding.pod in node.text


@every_case
def test_every_drawing_has_a_name_a_description_and_all_gpus(case):
    drawings = [
        svg for node in read(render(case(), "t")).all("details", "node") for svg in node.all("svg")
    ]

    for svg in drawings:
        assert svg.attributes["role"] == "img"
        assert svg.attributes["aria-label"]
        tiles = svg.all("rect", "tile")
        described = svg.all("desc")[0].text.split("; ")
        gpus = [line.split()[0] for line in described if not line.startswith("NIC ")]
        assert gpus == [f"GPU{i}" for i in range(len(tiles))]


@every_case
def test_drawn_things_stay_within_their_drawing(case):
    for svg in read(render(case(), "t")).all("svg"):
        if "viewbox" not in svg.attributes:
            continue
        left, top, width, height = map(float, svg.attributes["viewbox"].split())
        for rect in svg.all("rect"):
            x, y, w, h = (float(rect.attributes[key]) for key in ("x", "y", "width", "height"))
            assert left <= x <= x + w <= left + width
            assert top <= y <= y + h <= top + height


def test_the_summary_counts_every_pod_once():
    header = read(render(two_dgx(), "t")).all("header")[0]

    assert header.all("h1")[0].text == "4 of 6 pods placed, 1 denied, 1 without GPUs"
    assert "2 nodes with 16 GPUs: 11 free before, 7 after" in header.text
    assert header.all("a")[0].attributes["href"] == "#denied"


def test_waiting_pods_are_counted_with_their_reason():
    node = a_cluster_node("dgx-0", "dgx1-v100")
    simulation = simulate(a_snapshot(node), a_gang(9))

    root = read(render(simulation, "t"))

    assert root.all("h1")[0].text == "0 of 9 pods placed, 9 wait"
    reason = simulation.units[0].reason
    assert reason
    assert reason[1:] in root.all("article")[0].text


def test_a_gang_shows_its_bandwidth_beside_the_best_and_index_order():
    card = read(render(two_dgx(), "t")).all("article")[0]

    numbers = [number.text for number in card.all("dl", "bars")[0].all("b")]
    assert numbers == ["55.2 GB/s", "55.2 GB/s", "18.4 GB/s"]
    widths = [bar.attributes["style"] for bar in card.all("dl", "bars")[0].all("i")]
    assert widths == ["width:100.0%", "width:100.0%", "width:33.3%"]
    assert "3.0 × as fast as index order" in card.text
    assert "dgx-0: 55.2 GB/s" in card.text
    assert "It leaves GPUs 1 2 free." in card.text


def test_members_have_the_same_numbers_in_list_table_and_drawing():
    root = read(render(two_dgx(), "t"))

    members = root.all("article")[0].all("tbody")[0].all("tr")
    listed = [[cell.text for cell in row.all("td")] for row in members]
    assert listed == [
        [f"A{i}", f"vgg16-worker-{i}", "dgx-0", f"GPU {gpu}"] for i, gpu in enumerate((4, 5, 6, 7))
    ]
    node = root.all("details", "node")[0]
    rows = node.all("tbody")[0].all("tr")
    assert [row.all("span", "chip")[0].text for row in rows[4:]] == ["A0", "A1", "A2", "A3"]
    assert [text.text for text in node.all("text", "tag")] == ["A0", "A1", "A2", "A3"]
    assert "GPU3 held; GPU4 A0; GPU5 A1; GPU6 A2; GPU7 A3" in node.all("desc")[0].text


def test_the_table_names_the_nvlinks_of_each_gpu():
    rows = read(render(two_dgx(), "t")).all("details", "node")[0].all("tbody")[0].all("tr")

    assert rows[0].all("td")[-1].text.split("NV")[1:] == ["1: 1, 2 ", "2: 3, 4 "]


def test_unknown_links_have_no_bandwidth():
    card = read(render(unknown(), "t")).all("article")[0]

    assert "it is not known how these GPUs are linked" in card.text
    assert "GB/s" not in card.text


def test_a_gang_over_nodes_says_that_the_network_is_not_counted():
    nodes = [a_cluster_node(f"dgx-{i}", "dgx1-v100") for i in range(2)]

    card = read(render(simulate(a_snapshot(*nodes), a_gang(12)), "t")).all("article")[0]

    assert "Chosen, NICs not counted" in card.text
    assert "the slowest link is PCIe out of dgx-0" in card.text
    assert len(card.all("tbody")[0].all("tr")) == 12
    assert "open" not in card.all("details")[-1].attributes


def test_index_order_over_more_nodes_has_a_number_and_no_bar():
    nodes = [a_cluster_node(name, "l4x8") for name in "abc"]
    taken = {"a": range(2, 8), "b": range(2, 8)}

    card = read(render(simulate(a_snapshot(*nodes, taken=taken), a_gang(4)), "t")).all("article")[0]

    assert "not comparable: it spans 2 nodes, this plan 1" in card.text
    assert len(card.all("dl", "bars")[0].all("b")) == 3
    assert len(card.all("dl", "bars")[0].all("i")) == 2
    assert "as fast as index order" not in card.text


def test_one_gpu_alone_has_no_bandwidth():
    simulation = simulate(a_snapshot(a_cluster_node("n", "dgx1-v100")), a_gang(1))

    card = read(render(simulation, "t")).all("article")[0]

    assert "A single GPU has no bandwidth to compare" in card.text
    assert not card.all("dl")


def test_missing_bandwidth_of_a_gang_of_shares_has_a_reason():
    nodes = [a_cluster_node(f"n-{i}", "t4x4", "core_mem", card_memory=15) for i in range(2)]
    used = {node.name: range(1, len(node.cards)) for node in nodes}
    annotations = {keys.GANG: "g", keys.GANG_SIZE: "2"}
    gang = [an_applicant(f"g-{i}", {keys.GPU_MEM: 2}, annotations=annotations) for i in range(2)]

    card = read(render(simulate(a_snapshot(*nodes, taken=used), gang), "t")).all("article")[0]

    assert "placed" in card.text
    assert "modelled for whole GPUs" in card.text


def test_where_index_order_does_not_work_its_bar_is_empty():
    uneven = [*a_gang(1), *a_gang(2, gpus=2)[1:], *a_gang(3)[2:]]
    simulation = simulate(a_snapshot(a_cluster_node("n", "dgx1-v100")), uneven)

    card = read(render(simulation, "t")).all("article")[0]

    assert simulation.units[0].index_order is None
    assert "Index order: does not work here–" in card.text
    assert len(card.all("dl", "bars")[0].all("i")) == 2


def test_index_order_over_many_nodes_is_cut_short():
    nodes = [a_cluster_node(f"n-{i}", "t4x4") for i in range(6)]

    card = read(render(simulate(a_snapshot(*nodes), a_gang(20)), "t")).all("article")[0]

    assert "Index order: n-0 0 1 2 3, n-1 0 1 2 3, n-2 0 1 2 3 and 2 more" in card.text
    assert "As fast as index order here." in card.text


def test_unaccounted_node_has_no_free_gpus():
    snapshot = a_snapshot(a_cluster_node("n", "t4x4"), a_cluster_node("m", "l4x8", "mig"))
    lost = replace(snapshot.ledger.nodes["n"], unaccounted="default/old has no record")
    ledger = replace(snapshot.ledger, nodes={**snapshot.ledger.nodes, "n": lost})

    page = render(simulate(replace(snapshot, ledger=ledger), []), "t")

    alone, node = the_map(page)["rows"]
    assert alone[5] == "." * 8
    assert node[5] == "????"
    assert node[7] == 0
    assert node[10] == ["it is unknown which GPUs are allocated: default/old has no record"]


def test_shares_show_how_much_of_each_card_is_given_out():
    simulation = sharing()

    share = next(
        node
        for node in read(render(simulation, "t")).all("details", "node")
        if node.all("h3")[0].text == "share-0"
    )

    titles = [title.text for title in share.all("title")]
    assert titles[0].startswith("GPU0: ")
    amount = sum(share.mem for pod in simulation.pods for share in pod.gpus.shares if share.mem)
    assert amount == 6
    words = [word.text for word in share.all("text", "word")]
    assert sum(int(word.partition("/")[0]) for word in words if "/" in word) == amount + 3
    assert words[3] == "unhealthy"
    bars = share.all("rect", "part")
    assert Counter(bar.attributes["class"].split()[1] for bar in bars) == {"placed": 3, "held": 2}
    assert "unhealthy" in share.all("tbody")[0].all("tr")[3].text
    assert "4 GiB, 25 %" in share.all("tbody")[0].all("tr")[3].text


def test_gpus_of_nvidias_plugin_are_not_free():
    plain = next(
        node
        for node in read(render(sharing(), "t")).all("details", "node")
        if node.all("h3")[0].text == "plain-0"
    )

    assert [word.text for word in plain.all("text", "word")] == ["by count"] * 4
    assert "?" not in plain.text
    assert "2 of 4 GPUs free" in plain.all("summary")[0].text
    assert "default/plugin (2)" in plain.text


def test_unhealthy_gpus_have_words_and_outline():
    node = read(render(mixed(), "t")).all("details", "node")[0]

    words = [word.text for word in node.all("text")]
    assert "unhealthy" in words
    assert "cordoned" in words
    assert len(node.all("rect", "faulty")) == 2


def test_denied_pods_show_fixes_and_equal_ones_are_grouped():
    findings = (FINDING,)
    alike = [an_applicant(f"n-{i}", {}, findings=findings, denied=True) for i in range(14)]
    warned = an_applicant("w", {}, findings=findings)

    root = read(render(simulate(a_snapshot(), [*alike, warned]), "t"))

    denied, warned = root.all("article")
    assert denied.all("h3")[0].text.endswith("n-11 and 2 more")
    assert "LW101 22 is not allowed: compute is a multiple of 5." in denied.text
    assert "Fix: Write 20 or 25." in denied.text
    assert warned.all("h3")[0].text == "w"


def test_additions_of_profiles_are_shown():
    trace = Trace("driver", matched=True, reason="it is", added={"metadata.labels[a]": "1.5.0"})

    root = read(render(simulate(a_snapshot(), [an_applicant("p", {}, profiles=(trace,))]), "t"))

    assert "driverto pmetadata.labels[a] = 1.5.0" in root.text


def test_nodes_that_are_alike_are_drawn_once():
    nodes = [a_cluster_node(f"node-{i:02}", "dgx1-v100") for i in range(40)]

    root = read(render(simulate(a_snapshot(*nodes), a_gang(30, gpus=8)), "t"))

    (drawn,) = root.all("details", "node")
    assert drawn.all("h3")[0].text == "node-00 and 29 alike"
    assert "are on node-01, node-02" in drawn.text
    assert "node-24 and 5 more." in drawn.text


def test_nodes_that_others_have_too_are_drawn_each():
    nodes = [a_cluster_node(f"node-{i}", "dgx1-v100") for i in range(3)]
    snapshot = a_snapshot(*nodes, taken={"node-1": (0,)})

    root = read(render(simulate(snapshot, a_gang(3, gpus=7)), "t"))

    heads = [node.all("h3")[0].text for node in root.all("details", "node")]
    assert heads == ["node-0 and 1 alike", "node-1"]


def test_the_caption_names_the_command_the_time_and_the_inputs():
    caption = Caption(
        ("linkwise", "simulate", "my job.yaml", "--cluster", "c.yaml"), 0, ("c.yaml",)
    )

    shown = read(render_page(simulate(a_snapshot(), []), caption)).all("div", "caption")[0].text

    assert "linkwise simulate 'my job.yaml' --cluster c.yaml" in shown
    assert "1970-01-01 00:00 UTC · from c.yaml" in shown


def test_long_lists_of_pods_are_folded():
    pods = [an_applicant(f"pod-{i}", {keys.GPU_WHOLE: 1}) for i in range(45)]

    nodes = [a_cluster_node(f"n-{i}", "dgx2") for i in range(3)]
    root = read(render(simulate(a_snapshot(*nodes), pods), "t"))

    assert "5 more pods" in [summary.text for summary in root.all("summary")]
    assert [chip.text for chip in root.all("span", "chip")][24:28] == ["Y", "Z", "AA", "AB"]


def test_pods_waiting_for_one_reason_are_grouped():
    pods = [an_applicant(f"pod-{i}", {keys.GPU_WHOLE: 1}) for i in range(45)]

    root = read(render(simulate(a_snapshot(a_cluster_node("n", "dgx2")), pods), "t"))

    (more,) = (one for one in root.all("details") if "same reason" in one.text)
    assert more.text.startswith("28 more wait for the same reason")
    assert [one.text for one in more.all("bdi")] == [f"pod-{i}" for i in range(17, 45)]
    assert root.text.count("Needs 1 GPU") == 1


HOSTILE = (
    "<script>alert(1)</script>",
    '"><svg onload=alert(1)>',
    "' onmouseover='x",
    "</style><b>",
    "&lt;script&gt;",
    "\u202eevil\u2066",
    "line\nbreak\x00\ud800",
    "שלום",
)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_text_wherever_they_stand(name):
    node = a_node(name, entry("dgx1-v100").machine)
    finding = Finding(Code.CLASS, Severity.ERROR, name, name, name, name)
    trace = Trace(name, matched=True, reason=name, added={name: name})
    annotations = {keys.GANG: name, keys.GANG_SIZE: "2"}
    limits = {keys.GPU_WHOLE: 1}
    pods = [
        *(an_applicant(f"{name}-{i}", limits, annotations=annotations) for i in range(2)),
        an_applicant(name, limits, findings=(finding,), denied=True),
        an_applicant(name, {}, profiles=(trace,), findings=(finding,)),
    ]
    page = render(simulate(a_snapshot(node), pods), name)

    root = read(page)

    assert page.encode()
    assert len(root.all("script")) == 2
    assert not [e for e in _elements(root) if any(key.startswith("on") for key in e.attributes)]
    assert len(root.all("style")) == 1
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name)
    assert root.all("title")[0].text == shown
    assert shown in {bdi.text for bdi in root.all("bdi")}
    assert the_map(page)["rows"][0][0] == shown


def _elements(root: Element) -> list[Element]:
    below = [child for child in root.children if isinstance(child, Element)]
    return below + [element for child in below for element in _elements(child)]


@given(st.text(max_size=30))
def test_any_title_is_shown_as_it_is(title):
    root = read(render(simulate(a_snapshot(), []), title))

    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in title)
    assert root.all("title")[0].text == shown


def test_everything_that_unfolds_can_be_reached_by_keyboard():
    root = read(render(mixed(), "t"))

    assert root.all("details")
    for details in root.all("details"):
        first = details.children[0]
        assert isinstance(first, Element)
        assert first.tag == "summary"
        assert first.text
    assert ":focus-visible{outline:3px" in root.all("style")[0].text


def jobs(sizes):
    return [
        an_applicant(
            f"j{number:02}-{i}",
            {keys.GPU_WHOLE: 1},
            annotations={keys.GANG: f"j{number:02}", keys.GANG_SIZE: str(size)},
        )
        for number, size in enumerate(sizes)
        for i in range(size)
    ]


def test_page_of_many_gangs_is_a_folded_list_with_a_search_and_waiting_gangs_first():
    simulation = simulate(a_snapshot(a_cluster_node("n", "dgx1-v100")), jobs([1] * 8 + [2] * 30))

    page = read(render(simulation, "t"))

    articles = page.all("article")
    assert len(articles) == 38
    assert ["waits" in article.text for article in articles] == [True] * 30 + [False] * 8
    assert [more.all("summary")[0].text for more in page.all("details", "fold")] == [
        "10 more gangs or pods"
    ]
    results = [details for details in page.all("details", "row") if "node" not in classes(details)]
    assert len(results) == 8
    assert not any("open" in details.attributes for details in results)
    assert [field.attributes["id"] for field in page.all("input")] == ["find-unit"]


def test_page_of_few_gangs_shows_them_and_has_no_search_of_its_own():
    page = read(render(simulate(a_snapshot(a_cluster_node("n", "dgx1-v100")), jobs([1, 2])), "t"))

    assert all("open" in details.attributes for details in page.all("details", "row"))
    assert not page.all("input")
    assert "1 member" in page.text
    assert "1 members" not in page.text


def test_plans_on_other_models_are_not_compared_by_a_ratio():
    nodes = [a_cluster_node("a", "dgx1-v100"), a_cluster_node("b", "dgx-h100")]

    page = read(render(simulate(a_snapshot(*nodes), a_gang(4)), "t"))

    models = "on Tesla V100-SXM2-32GB, this plan on NVIDIA H100 80GB HBM3"
    assert f"Index order is {models}." in page.text
    assert "× as fast" not in page.text


def classes(node):
    return node.attributes["class"].split()
