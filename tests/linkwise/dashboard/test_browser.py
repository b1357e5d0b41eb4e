"""The dashboard in a real browser, served by the command from cluster files."""

import re
import signal
import subprocess
import sys
from itertools import combinations, product
from pathlib import Path

import pytest
from support.browser import (
    NEEDS_CHROMIUM,
    new_context,
    new_page,
    running_chromium,
    violations,
)
from support.dashboard import CLUSTER, JOB, WRONG, owned, placed_pod, urgent, waiting_pod
from support.waiting import PATIENCE

pytestmark = NEEDS_CHROMIUM
LINKWISE = Path(sys.executable).with_name("linkwise")
HOSTILE = "<img src=x onerror=alert(1)>"
MANIFEST = JOB.replace("GPUS", "2")


@pytest.fixture(scope="module")
def chromium():
    with running_chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """Serves clusters by the command; returns the address of each."""
    started = []

    def serve(text: str) -> str:
        return start(text)[0]

    def start(text: str) -> tuple[str, subprocess.Popen]:
        file = tmp_path_factory.mktemp("cluster") / "cluster.yaml"
        file.write_text(text)
        arguments = [LINKWISE, "dashboard", "--cluster", file, "--no-browser"]
        process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)  # noqa: S603
        started.append(process)
        return re.search(r"http://\S+", process.stdout.readline())[0], process

    serve.start = start
    yield serve
    for process in started:
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
        process.stdout.close()


@pytest.fixture(scope="module")
def small(served):
    hostile = placed_pod("p", 5, gang=f'"{HOSTILE}"', node="dgx-1")
    pods = placed_pod("vgg-0", 0), placed_pod("vgg-1", 3), waiting_pod("big", 99), hostile
    return served(CLUSTER + "".join(pods))


@pytest.fixture(scope="module")
def many(served):
    """Serves clusters of so many nodes, each once."""
    addresses = {}

    def serve(nodes: int) -> str:
        if nodes not in addresses:
            text = CLUSTER.replace("count: 2", f"count: {nodes - 1}")
            addresses[nodes] = served(text + placed_pod("vgg-0", 0) + waiting_pod("big", 99))
        return addresses[nodes]

    return serve


@pytest.fixture
def opened(chromium):
    """Opens a view; the page must neither fail, nor ask elsewhere, nor show a dialog."""
    contexts = []

    def show(address: str, view: str = "fleet", width: int = 1400, scheme: str = "light"):
        context = new_context(chromium, width, scheme)
        contexts.append(context)
        page = new_page(context, address)
        page.goto(f"{address}#/{view}")
        page.wait_for_selector("#state .dot")
        return page

    yield show
    for context in contexts:
        for page in context.pages:
            assert not page.problems
        context.close()


def boxes(page, selector: str) -> list[dict]:
    """Return where elements are, of the first 200."""
    return page.evaluate(
        """selector => [...document.querySelectorAll(selector)].slice(0, 200).map(one => {
            const box = one.getBoundingClientRect();
            return {x: box.x, y: box.y, right: box.right, bottom: box.bottom};
        }).filter(box => box.right > box.x && box.bottom > box.y)""",
        selector,
    )


def overlaps(a: dict, b: dict) -> bool:
    wide = min(a["right"], b["right"]) - max(a["x"], b["x"])
    high = min(a["bottom"], b["bottom"]) - max(a["y"], b["y"])
    return wide > 0.5 and high > 0.5


VIEWS = (
    "fleet",
    "sets",
    "node/dgx-0",
    "waiting",
    "gang/team/vgg",
    "gang/team/big",
    "namespaces",
    "try",
)


@pytest.mark.parametrize("width", [400, 1400])
@pytest.mark.parametrize("view", VIEWS)
def test_nothing_overlaps_and_nothing_is_wider_than_the_screen(small, opened, view, width):
    page = opened(small, view, width)
    page.wait_for_selector("h1, #map a.node")
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert_is_laid_out(page, width)


def assert_is_laid_out(page, width: int) -> None:
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for selector in ("#view > *", "#top > *", ".fact", ".controls > label", "a.node", ".card"):
        pairs = combinations(boxes(page, selector), 2)
        assert not [pair for pair in pairs if overlaps(*pair)], selector
    cut = """() => [...document.querySelectorAll(".group-head")].filter(head =>
        head.scrollWidth > head.clientWidth || head.scrollHeight > head.clientHeight).length"""
    assert not page.evaluate(cut)


@pytest.mark.parametrize("view", VIEWS)
def test_axe_finds_nothing_wrong_in_both_schemes_and_widths(small, opened, view):
    page = opened(small, view)
    page.wait_for_selector("h1, #map a.node")
    for width, scheme in product((400, 1400), ("light", "dark")):
        page.set_viewport_size({"width": width, "height": 800})
        page.emulate_media(color_scheme=scheme)
        assert violations(page) == []


@pytest.mark.parametrize("nodes", [128, 5000])
def test_axe_finds_nothing_wrong_on_maps_of_many_nodes(many, opened, nodes):
    page = opened(many(nodes))
    page.wait_for_selector("a.node")
    for colour in ("units", "used", "fragmented"):
        page.select_option("#colour", colour)
        assert violations(page) == []


def test_axe_finds_nothing_wrong_in_results_of_a_manifest(small, opened):
    page = opened(small, "try")
    for text, shows in (
        (MANIFEST, ".figures.many svg"),
        (WRONG, ".finding"),
        ("kind: [", ".notice"),
    ):
        page.fill("#manifest", text)
        page.get_by_role("button", name="Try it").click()
        page.wait_for_selector(f"main {shows}")
        assert violations(page) == []


@pytest.mark.parametrize("nodes", [3, 128, 5000])
def test_the_map_has_elements_for_what_is_seen_alone(many, opened, nodes):
    page = opened(many(nodes))
    page.wait_for_selector("a.node")

    assert f"of {nodes:,} nodes" in page.locator(".keys").inner_text()
    page.select_option("#size", "cards")
    shown = page.locator("a.node").count()
    assert shown == nodes if nodes == 3 else 0 < shown <= 200
    page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
    page.wait_for_selector(f"[data-node=dgx-{nodes - 2}]")
    assert page.locator("a.node").count() <= 200


def test_search_filter_sort_and_group_answer(many, opened):
    page = opened(many(128))
    page.wait_for_selector("a.node")

    page.fill("#search", "team/vgg")
    assert page.locator("a.node").count() == 1
    page.fill("#search", "")
    page.select_option("#show", "partly")
    assert page.locator("a.node").count() == 2
    page.select_option("#show", "all")
    page.select_option("#sort", "used")
    page.select_option("#group", "none")
    assert page.locator("a.node").first.get_attribute("data-node") == "dgx-0"
    page.select_option("#colour", "fragmented")
    assert "f3" in page.locator("a.node").first.get_attribute("class")
    page.fill("#search", "there is none")
    assert "nothing matches" in page.locator(".keys").inner_text()


def test_the_address_has_the_choices_of_the_map(many, opened):
    page = opened(many(128))
    page.wait_for_selector("a.node")
    page.fill("#search", "dgx-1 & ?")
    page.fill("#search", "dgx-1")
    page.select_option("#sort", "free")
    page.select_option("#group", "none")
    page.wait_for_function("() => location.hash.endsWith('group=none')")

    sent = opened(many(128), page.url.partition("#/")[2])
    sent.wait_for_selector("a.node")
    controls = ("#search", "#sort", "#group", "#colour")
    assert [sent.input_value(control) for control in controls] == ["dgx-1", "free", "none", "units"]
    assert 0 < sent.locator("a.node").count() < 128

    sent.locator("a.node").first.click()
    sent.wait_for_selector("svg rect.tile")
    assert "?" not in sent.url
    sent.go_back()
    sent.wait_for_selector("a.node")
    assert sent.input_value("#search") == "dgx-1"


def test_choices_of_an_address_that_do_not_exist_are_the_usual_ones(small, opened):
    page = opened(small, "fleet?sort=constructor&group=%3Cimg%3E&colour=used&at=x")
    page.wait_for_selector("a.node")

    controls = ("#sort", "#group", "#colour")
    assert [page.input_value(control) for control in controls] == ["name", "model", "used"]


def test_keys_go_from_node_to_node_and_open_one(many, opened):
    page = opened(many(128))
    page.wait_for_selector("a.node")

    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "search"
    page.locator("a.node").first.focus()
    page.keyboard.press("End")
    assert page.evaluate("document.activeElement.dataset.node") == "dgx-126"
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("document.activeElement.dataset.node") == "dgx-125"
    page.keyboard.press("Enter")
    page.wait_for_selector("h1:has-text('dgx-125')")
    page.keyboard.press("Escape")
    page.wait_for_selector("a.node")


def test_a_node_shows_links_holders_and_worth(small, opened):
    page = opened(small, "node/dgx-0")
    page.wait_for_selector("svg rect.tile")

    assert page.locator("rect.tile.placed").count() == 2
    assert page.locator("path.wire.lit").count() == 1
    text = page.locator("main").inner_text()
    assert "team/vgg" in text
    assert "2 GPUs" in text
    assert "GB/s" in text
    page.get_by_role("link", name="team/vgg", exact=True).first.click()
    page.wait_for_selector("h1:has-text('vgg')")
    assert "placed" in page.locator(".title").inner_text()


def test_a_unit_that_waits_says_why(small, opened):
    page = opened(small, "waiting")
    page.wait_for_selector(".unit-row")

    assert "never fits" in page.locator(".unit-row").inner_text()
    assert "It would not fit if nothing else ran" in page.locator(".would-help").inner_text()
    page.get_by_role("link", name="big").click()
    page.wait_for_selector(".help")
    assert "It would not fit if nothing else ran" in page.locator(".help").inner_text()


def test_a_unit_that_waits_names_what_it_would_preempt(served, opened):
    low = [owned(placed_pod(f"p{i}-{n}", i, f"g{n}", f"dgx-{n}")) for i in range(8) for n in (0, 1)]
    address = served("".join([CLUSTER, *low, urgent(waiting_pod("high", 8))]))
    named = "Would preempt gang team/g0: 8 pods."

    page = opened(address, "waiting")
    page.wait_for_selector(".unit-row")
    assert named in page.inner_text(".queue")

    page.click(".unit-row h2 a")
    page.wait_for_selector(".why")
    assert named in page.inner_text(".why")


def test_free_sets_are_counted_by_size_with_what_fragments_them(small, opened):
    page = opened(small, "sets")
    page.wait_for_selector(".size")

    counts = page.locator(".size > b").all_inner_texts()
    assert counts == ["0", "2", "6", "13"]
    assert "none" in page.locator(".size").first.inner_text()
    page.locator(".slots summary").first.click()
    assert "team/vgg" in page.locator(".slots table").first.inner_text()
    page.get_by_text("that moves would make whole").click()
    assert "to dgx-" in page.locator(".slots table").last.inner_text()


@pytest.mark.parametrize(
    "view", ["node/dgx-1", f"gang/team/{HOSTILE.replace('/', '%2F')}", "fleet"]
)
def test_hostile_names_are_text(small, opened, view):
    page = opened(small, view)
    page.wait_for_selector("h1, a.node")

    if view != "fleet":
        assert HOSTILE in page.locator("main").inner_text()
    assert not page.locator("img").count()


def test_a_manifest_is_placed_on_the_map_in_a_second_colour(small, opened):
    page = opened(small, "try")
    page.fill("#manifest", MANIFEST)
    page.get_by_role("button", name="Try it").click()
    page.wait_for_selector(".figures.many svg")

    assert "2 of 2 pods would be placed" in page.locator("main").inner_text()
    assert page.locator("main rect.tile.placed").count() == 4
    page.get_by_role("link", name="See it on the map").click()
    page.wait_for_selector("a.node.tried")
    assert page.locator("a.node i.g.trial").count() == 4
    page.select_option("#show", "trial")
    assert page.locator("a.node").count() == page.locator("a.node.tried").count()


def test_a_file_that_is_dropped_is_tried(small, opened):
    page = opened(small, "try")
    page.wait_for_selector("#manifest")
    dropped = page.evaluate_handle(
        """text => {
            const data = new DataTransfer();
            data.items.add(new File([text], "job.yaml", {type: "application/yaml"}));
            return data;
        }""",
        MANIFEST,
    )
    page.dispatch_event("#manifest", "dragover", {"dataTransfer": dropped})
    page.dispatch_event("#manifest", "drop", {"dataTransfer": dropped})
    page.wait_for_selector(".figures.many svg")

    assert page.input_value("#manifest") == MANIFEST
    assert "2 of 2 pods would be placed" in page.locator("main").inner_text()


def test_nothing_moves_for_people_who_reduce_motion(small, opened):
    page = opened(small)
    page.wait_for_selector("a.node")
    moving = """() => [...document.querySelectorAll("*")].filter(one => {
        const style = getComputedStyle(one);
        return [style.animationDuration, style.transitionDuration].join().split(/, */)
            .some(time => parseFloat(time) > 0.001);
    }).length"""

    assert page.evaluate(moving) > 0
    page.emulate_media(reduced_motion="reduce")
    assert page.evaluate(moving) == 0


def test_findings_name_lines_of_the_manifest(small, opened):
    page = opened(small, "try")
    page.fill("#manifest", WRONG)
    page.get_by_role("button", name="Try it").click()
    page.wait_for_selector(".finding")

    assert "LW101" in page.locator(".finding").first.inner_text()
    assert "line 10" in page.locator(".finding").first.inner_text()
    page.get_by_role("button", name="line 10").first.click()
    selected = page.evaluate(
        "(area => area.value.slice(area.selectionStart, area.selectionEnd))"
        "(document.getElementById('manifest'))"
    )
    assert selected.strip() == "aliyun.com/gpu-core.percentage: 7"
    page.fill("#manifest", "kind: [")
    page.get_by_role("button", name="Try it").click()
    page.wait_for_selector(".notice")
    assert "line 2" in page.locator(".notice").first.inner_text()


def test_an_unknown_address_says_so(small, opened):
    page = opened(small, "node/dgx-99")

    page.wait_for_selector(".empty")
    assert "no node" in page.locator("main").inner_text()


def test_a_page_whose_command_ended_says_so_and_keeps_the_map(served, opened):
    address, process = served.start(CLUSTER)
    page = opened(address)
    page.wait_for_selector("a.node")

    process.send_signal(signal.SIGINT)
    page.wait_for_selector("#state:has-text('Not connected')")

    assert "has ended" in page.locator("#notices").inner_text()
    assert page.locator("a.node").count() == 3
    assert all("Failed to load" in problem for problem in page.problems)
    page.problems.clear()
    page.close()
