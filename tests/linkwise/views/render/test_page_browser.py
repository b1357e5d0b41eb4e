"""The pages in a real browser: what is drawn stays apart, and everything answers."""

from functools import cache
from itertools import combinations
from tempfile import NamedTemporaryFile

import pytest
from support.browser import NEEDS_CHROMIUM, new_context, new_page, running_chromium

from linkwise.views.analysis.fleet import fleet_of, usage_of
from linkwise.views.analysis.pending import pending_units
from linkwise.views.analysis.planner_view import planner_view
from linkwise.views.live.kubeconfig import Access
from linkwise.views.live.load import load_cluster
from linkwise.views.render.page.caption import Caption
from linkwise.views.render.page.inspection import inspection_page

pytestmark = NEEDS_CHROMIUM
WIDTHS = {"desktop": 1280, "phone": 390}
HOSTILE = "<img src=x onerror=alert(1)>"
GROUPS = """
  - {name: dgx, count: COUNT, machine: dgx1-v100, mode: topology, used: [{gpu: 0}, {gpu: 3}]}
  - {name: a-node-with-a-name-that-is-long-enough-to-need-several-lines.example, machine: dgx-h100,
     mode: topology}
  - {name: share-0, machine: t4x4, mode: core_mem, gpuMemory: 15, used: [{gpu: 0, mem: 3}]}
"""
PENDING = """
---
apiVersion: v1
kind: Pod
metadata:
  name: worker-0
  namespace: "HOSTILE"
  annotations: {linkwise.dev/gang: big-train, linkwise.dev/gang-size: "1"}
spec:
  schedulingGates: [{name: linkwise.dev/gang}]
  containers: [{name: c, resources: {limits: {aliyun.com/gpu: 64}}}]
""".replace("HOSTILE", HOSTILE)
SIMULATED = """
apiVersion: linkwise.dev/v1alpha1
kind: Cluster
nodes:
  - {name: dgx, count: 5, machine: dgx1-v100, mode: topology, cpu: 96, memory: 768Gi}
  - {name: plain, machine: l4x8, mode: default, cpu: 96, memory: 768Gi}
"""
JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  parallelism: 8
  completions: 8
  completionMode: Indexed
  template:
    metadata: {annotations: {linkwise.dev/gang: train, linkwise.dev/gang-size: "8"}}
    spec:
      restartPolicy: Never
      containers: [{name: c, image: x, resources: {limits: {aliyun.com/gpu: 2}}}]
---
apiVersion: v1
kind: Pod
metadata: {name: counted}
spec: {containers: [{name: c, image: x, resources: {limits: {nvidia.com/gpu: 3}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: denied}
spec: {containers: [{name: c, image: x, resources: {limits: {aliyun.com/gpu-core.percentage: 7}}}]}
"""


COUNTED = """
apiVersion: linkwise.dev/v1alpha1
kind: Cluster
nodes:
  - {name: whole, machine: dgx-h100}
  - {name: partly, machine: dgx-h100}
"""
COUNTED_POD = """
---
apiVersion: v1
kind: Pod
metadata:
  name: p-NODE
  uid: p-NODE
  namespace: default
  annotations:
    linkwise.dev/gang: "HOSTILE"
    linkwise.dev/gang-size: "1"
    linkwise.dev/allocation: '{"v":1,"node":"NODE","gpus":null,"count":GPUS}'
spec:
  nodeName: NODE
  containers: [{name: c, image: x, resources: {limits: {nvidia.com/gpu: GPUS}}}]
""".replace("HOSTILE", HOSTILE)


@pytest.fixture(scope="module")
def chromium():
    with running_chromium() as browser:
        yield browser


@pytest.fixture
def opened_file(chromium, tmp_path):
    """Opens a page in a file."""
    contexts = []

    def show(name: str, width: int, scheme: str = "light"):
        context = new_context(chromium, width, scheme)
        contexts.append(context)
        page = new_page(context, "file:")
        page.goto((tmp_path / name).as_uri())
        page.wait_for_selector("#map")
        page.locator("#map").scroll_into_view_if_needed()
        page.wait_for_selector("button.node")
        return page

    yield show
    for context in contexts:
        context.close()


@pytest.fixture
def opened(opened_file, tmp_path):
    """Opens the page of a cluster with so many nodes."""

    def show(nodes: int = 3, width: int = 1280):
        (tmp_path / "page.html").write_text(page_of(nodes), encoding="utf-8")
        return opened_file("page.html", width)

    return show


@cache
def page_of(nodes: int) -> str:
    head = "apiVersion: linkwise.dev/v1alpha1\nkind: Cluster\nnodes:"
    with NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(head + GROUPS.replace("COUNT", str(nodes - 2)) + PENDING)
        file.flush()
        now = load_cluster(Access(), file.name)
    ledgers = list(now.cluster.ledger.nodes.values())
    caption = Caption(("linkwise", "inspect", "--cluster", "cluster.yaml"), 0, ("cluster.yaml",))
    waiting = pending_units(planner_view(now, 0))
    return inspection_page(fleet_of(ledgers), usage_of(ledgers), waiting, caption)


def boxes(page, selector: str) -> list[dict]:
    """Return where the shown elements are, of the first 200."""
    matches = page.evaluate(
        """selector => [...document.querySelectorAll(selector)].slice(0, 200).map(one => {
            const box = one.getBoundingClientRect();
            return {x: box.x, y: box.y, right: box.right, bottom: box.bottom,
                    over: one.scrollWidth - one.clientWidth, inline: one.clientWidth === 0};
        }).filter(box => box.right > box.x && box.bottom > box.y)""",
        selector,
    )
    assert matches, f"nothing is shown of {selector}"
    return matches


def overlaps(a: dict, b: dict) -> bool:
    wide = min(a["right"], b["right"]) - max(a["x"], b["x"])
    high = min(a["bottom"], b["bottom"]) - max(a["y"], b["y"])
    return wide > 0.5 and high > 0.5


APART = ("main > *", ".fact", ".controls > label", ".keys > *", ".row", "button.node", ".parts > *")


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
@pytest.mark.parametrize("nodes", [3, 128, 5000])
def test_nothing_overlaps_and_nothing_is_wider_than_the_screen(opened, nodes, width):
    page = opened(nodes, width)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert_is_laid_out(page, width)


def assert_is_laid_out(page, width: int) -> None:
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for selector in APART:
        matches = boxes(page, selector)
        assert not [pair for pair in combinations(matches, 2) if overlaps(*pair)], selector
        assert all(box["x"] >= 0 and box["right"] <= width for box in matches), selector
    for selector in ("button.node", ".fact", "label", "td", "th", "li", ".caption p"):
        assert not [b for b in boxes(page, selector) if b["over"] > 1 and not b["inline"]], selector
    assert not page.problems


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_a_node_opens_to_its_links_within_the_screen(opened, width):
    page = opened(3, width)

    page.locator("button.node", has_text="dgx").click()

    (dialog,) = boxes(page, "dialog")
    assert dialog["x"] >= 0
    assert dialog["right"] <= width
    assert dialog["over"] <= 0
    assert page.locator("dialog path.wire").count()
    words = page.locator("dialog text.word").all_text_contents()
    assert [word for word in words if word != "free"] == ["held", "held"]
    assert "as many of an empty one reach" in page.locator("dialog").inner_text()
    inside = boxes(page, "dialog .halves > *")
    assert not [pair for pair in combinations(inside, 2) if overlaps(*pair)]
    page.keyboard.press("Escape")
    assert not page.locator("dialog").is_visible()


def test_shares_of_a_card_are_drawn_as_parts(opened):
    page = opened(3)

    page.locator("button.node", has_text="share-0").click()

    assert page.locator("dialog rect.part").count() == 1
    assert "3 GiB" in page.locator("dialog table").inner_text()


def test_search_filter_sort_and_colour_answer_at_once(opened):
    page = opened(128)

    page.fill("#search", "DGX-17")
    assert page.locator("button.node").count() == 1
    assert page.locator("#count").inner_text() == "1 of 128 nodes"
    page.fill("#search", "others/share")
    assert page.locator("button.node .name").all_text_contents() == ["share-0"]
    page.fill("#search", "")
    page.select_option("#show", "free")
    assert page.locator("button.node").count() == 1
    page.select_option("#show", "all")
    page.select_option("#group", "mode")
    assert page.locator(".group-head h3").all_text_contents() == ["core_mem", "topology"]
    page.select_option("#group", "none")
    page.select_option("#sort", "free")
    assert "8 of 8 GPUs free" in page.locator("button.node").first.get_attribute("title")
    page.select_option("#colour", "fragmented")
    assert "f0" in page.locator("button.node").first.get_attribute("class")
    assert "about half free" in page.locator(".legend-line").inner_text()
    page.fill("#search", "there is none")
    assert page.locator("#count").inner_text() == "0 of 128 nodes: nothing matches"


def test_a_namespace_shows_its_nodes(opened):
    page = opened(128)

    page.get_by_role("button", name="Show the nodes of others").click()

    assert page.input_value("#search") == "others/"
    assert page.locator("#count").inner_text() == "127 of 128 nodes"


def test_arrows_go_from_node_to_node_and_enter_opens(opened):
    page = opened(128)
    page.select_option("#group", "none")
    page.locator("button.node").nth(0).focus()

    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    below = page.evaluate("document.activeElement.getBoundingClientRect().top")
    page.keyboard.press("ArrowUp")

    first = page.locator("button.node").nth(1)
    assert page.evaluate("document.activeElement.dataset.node") == first.get_attribute("data-node")
    assert below > page.evaluate("document.activeElement.getBoundingClientRect().top")
    page.keyboard.press("Enter")
    assert page.locator("dialog h3").inner_text() in first.get_attribute("aria-label")


def test_a_hostile_namespace_is_text(opened):
    page = opened(3)

    waiting = page.locator("#waiting + .card")

    assert HOSTILE in waiting.inner_text()
    assert "never fits" in waiting.inner_text()
    assert not page.locator("img").count()
    assert not page.problems


def test_the_page_of_5000_nodes_is_small():
    assert len(page_of(5000).encode()) <= 3_000_000


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_the_page_of_a_simulation_is_laid_out_alike(linkwise, write, opened_file, width, scheme):
    write("cluster.yaml", SIMULATED)
    write("job.yaml", JOB)
    linkwise("simulate", "job.yaml", "--cluster", "cluster.yaml", "-o", "html", "--to", "page.html")

    page = opened_file("page.html", width, scheme)

    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for selector in (
        "main > *",
        "article > *",
        ".head > *",
        "button.node",
        ".inside > .halves > *",
    ):
        matches = boxes(page, selector)
        assert not [pair for pair in combinations(matches, 2) if overlaps(*pair)], selector
    page.select_option("#show", "trial")
    assert page.locator("#count").inner_text() == "3 of 6 nodes"
    page.locator("button.node").first.click()
    assert page.locator("dialog .chip").count() == 4
    assert page.locator("dialog rect.tile.placed").count() == 8
    assert "?" not in page.locator("main").inner_text()
    assert not page.problems


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_many_jobs_are_a_list_in_which_a_search_leaves_no_empty_parts(
    linkwise, write, opened_file, width
):
    write("cluster.yaml", SIMULATED)
    write("jobs.yaml", "---".join(JOB.replace("train", f"train-{i}") for i in range(30)))
    linkwise(
        "simulate", "jobs.yaml", "--cluster", "cluster.yaml", "-o", "html", "--to", "page.html"
    )

    page = opened_file("page.html", width, "light")

    assert len({box["bottom"] - box["y"] for box in boxes(page, ".results .chip")}) == 1
    for selector in ("main > *", ".results > *", ".results > article .head > *"):
        matches = boxes(page, selector)
        assert not [pair for pair in combinations(matches, 2) if overlaps(*pair)], selector
    headings = page.locator(".results h2")
    assert headings.all_inner_texts()[0] == "Waiting"
    page.fill("#find-unit", "train-3")
    assert page.locator("#unit-count").inner_text().startswith("1 of ")
    assert sum(each.is_visible() for each in headings.all()) == 1
    for part in page.locator(".results, .results > .card, .results > .fold").all():
        assert part.is_visible() == any(unit.is_visible() for unit in part.locator(".unit").all())
    assert not page.problems


def test_node_of_nvidias_plugin_has_a_bandwidth_if_one_gang_has_it_whole(
    linkwise, write, opened_file
):
    pods = (
        COUNTED_POD.replace("NODE", node).replace("GPUS", gpus)
        for node, gpus in (("whole", "8"), ("partly", "3"))
    )
    write("cluster.yaml", COUNTED + "".join(pods))
    linkwise("inspect", "--cluster", "cluster.yaml", "-o", "html", "--to", "page.html")
    page = opened_file("page.html", 1280, "light")

    def dialog(node):
        page.locator("button.node", has_text=node).click()
        text, held = (
            page.locator("dialog").inner_text(),
            page.locator("dialog rect.tile.held").count(),
        )
        page.locator("dialog button.close").click()
        return text, held

    whole, partly = dialog("whole"), dialog("partly")
    assert f"Gang default/{HOSTILE} has all 8 GPUs: 211.9 GB/s." in whole[0]
    assert whole[1] == 8
    unknown = f"Gang default/{HOSTILE}: the bandwidth is not known, since NVIDIA's plugin chooses"
    assert unknown in partly[0]
    assert "GB/s" not in partly[0]
    assert partly[1] == 0
    assert not page.problems
