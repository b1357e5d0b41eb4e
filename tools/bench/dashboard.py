"""The live page in Chromium: its first picture, changes, scrolling and memory.

`PYTHONPATH=tests python -m tools.bench.dashboard` prints these figures. The cluster is a fake API
server.
"""

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from playwright.sync_api import Browser, CDPSession, Page
from support.browser import new_context, running_chromium
from support.chromium import CHROMIUM
from support.dashboard_process import ChangingCluster, resident, running_dashboard

from tools.bench.measure import Figure, spread

_TIMES = 7
_SIZES = ((128, "≤ 1"), (5000, "≤ 2"))
_DRAWN = """
new MutationObserver((_, observer) => {
    if (!document.querySelector("a.node")) return;
    observer.disconnect();
    requestAnimationFrame(() => requestAnimationFrame(() => { window.drawn = performance.now(); }));
}).observe(document, {childList: true, subtree: true});
"""
"""Sets `drawn` to the time of the frame after the first one with nodes [ms since navigation]."""
_COUNTED = """pods => document.querySelector(".fact:nth-child(4) b")?.textContent === pods
    && performance.now()"""
_PIXELS, _SPEED = 12_000, 3000
"""How far the page is scrolled [px], and how fast [px/s]."""
_CARDS = 1000
"""The number of nodes whose cards fill a page of this height."""
_DISPLAYED = "disabled-by-default-display.framedisplayed"
"""The category of the events of Chromium's tracing about frames on the screen."""


class _Served(NamedTuple):
    cluster: ChangingCluster
    url: str
    process: subprocess.Popen[str]


def figures() -> Iterator[Figure]:
    """Yield the figures of pages of a small and a large cluster; none without Chromium."""
    if CHROMIUM is None:
        return
    with running_chromium() as browser:
        for nodes, target in _SIZES:
            what = f"live page of {nodes:,} nodes"
            with _served(nodes) as served:
                first = [_first_picture(browser, served.url) for _ in range(_TIMES)]
                yield Figure(f"{what}: first picture", target, spread(first), "s")
                changes = [*_changes(browser, served)]
                yield Figure(f"{what}: a new pod is seen", "≤ 300", spread(changes), "ms")
                memory = spread([resident(served.process)])
                yield Figure(f"{what}: memory of the server", "≤ 200", memory, "MB")
                if nodes > _CARDS:
                    scrolls = [_scrolled(browser, served.url) for _ in range(_TIMES)]
                    frames = spread([scroll.frames for scroll in scrolls])
                    yield Figure(f"{what}: frames while scrolling", "60", frames, "/s")
                    work = spread([scroll.work for scroll in scrolls])
                    yield Figure(f"{what}: the same, CPU of the page", "≤ 16.7", work, "ms")


@contextmanager
def _served(nodes: int) -> Iterator[_Served]:
    with ChangingCluster(nodes) as cluster, TemporaryDirectory() as folder:
        cluster.change(nodes, 0)
        config = cluster.write_kubeconfig(Path(folder))
        with running_dashboard("--kubeconfig", config) as (url, process):
            yield _Served(cluster, url, process)


@contextmanager
def _page(browser: Browser, url: str) -> Iterator[Page]:
    context = new_context(browser, 1400, "light")
    page = context.new_page()
    page.add_init_script(_DRAWN)
    page.goto(url)
    page.wait_for_function("() => window.drawn")
    yield page
    context.close()


def _first_picture(browser: Browser, url: str) -> float:
    """Return the time from the navigation to the first picture [s]."""
    with _page(browser, url) as page:
        drawn = float(page.evaluate("window.drawn"))
    return drawn / 1000


def _changes(browser: Browser, served: _Served) -> Iterator[float]:
    """Yield the time from each change at the API server until it is seen [ms]."""
    with _page(browser, served.url) as page:
        for _ in range(_TIMES + 1):
            began = page.evaluate("performance.now()")
            served.cluster.change(1, 0)
            wanted = f"{served.cluster.pods:,}"
            seen = page.wait_for_function(_COUNTED, arg=wanted).json_value()
            # The server rests after each change.
            time.sleep(0.2 + 2 * (seen - began) / 1000)
            yield seen - began


class _Scroll(NamedTuple):
    frames: float
    """Frames on the screen, by Chromium's tracing [1/s]."""
    work: float
    """CPU time of the page's main thread for a 60th of a second [ms]."""


def _scrolled(browser: Browser, url: str) -> _Scroll:
    with _page(browser, url) as page:
        page.select_option("#size", "cards")
        client = page.context.new_cdp_session(page)
        client.send("Performance.enable", {"timeDomain": "threadTicks"})
        before = _task_seconds(client)
        browser.start_tracing(page=page, categories=[_DISPLAYED])
        gesture = {"x": 700, "y": 600, "yDistance": -_PIXELS, "speed": _SPEED}
        client.send("Input.synthesizeScrollGesture", gesture)
        work = _task_seconds(client) - before
        events = json.loads(browser.stop_tracing())["traceEvents"]
    shown = [event["ts"] for event in events if event["name"] == "Display::FrameDisplayed"]
    frames = (len(shown) - 1) / ((max(shown) - min(shown)) / 1e6)
    return _Scroll(frames, 1000 * work / (60 * _PIXELS / _SPEED))


def _task_seconds(client: CDPSession) -> float:
    metrics = client.send("Performance.getMetrics")["metrics"]
    return next(float(each["value"]) for each in metrics if each["name"] == "TaskDuration")


def main() -> None:
    """Print the figures."""
    for figure in figures():
        print(figure, flush=True)


if __name__ == "__main__":
    main()
