"""The time line in a real browser: it moves the map, nodes, the free sets, gangs and what waits."""

import asyncio
import threading

import pytest
from support.browser import (
    NEEDS_CHROMIUM,
    new_context,
    new_page,
    running_chromium,
    violations,
)
from support.dashboard import placed_pod, waiting_pod

from linkwise.dashboard.feed import Feed
from linkwise.dashboard.server import serve_dashboard

pytestmark = NEEDS_CHROMIUM
START = 1_700_000_000.0
MOMENTS = (
    (waiting_pod("vgg", 4),),
    (placed_pod("vgg-0", 0), placed_pod("vgg-1", 3)),
    (),
)
"""The pods, a minute after each other: a gang waits, has GPUs, and is gone."""


@pytest.fixture
def page(moment):
    """The page of a cluster with a past, which ends a minute after the last of `MOMENTS`."""
    time, stop, ready = [START], asyncio.Event(), threading.Event()
    served = []

    async def serve():
        feed = Feed(lambda: time[0], live=True)
        for pods in MOMENTS:
            await feed.publish(moment(*pods).current)
            time[0] += 60
        async with serve_dashboard(feed, "a-secret", 0) as (_, address):
            served.extend((asyncio.get_running_loop(), address.url))
            ready.set()
            await stop.wait()
            feed.close()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert ready.wait(60)
    loop, url = served
    try:
        with running_chromium() as browser:
            page = new_page(new_context(browser, 1400, "light"), url)
            page.goto(url)
            page.wait_for_selector("#time:not([hidden])")
            yield page
            assert page.problems == []
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()


def open_view(page, view):
    page.evaluate("view => { location.hash = `#/${view}`; }", view)


def scrub(page, seconds):
    """Move the time line to so many seconds after the start."""
    page.evaluate(
        """part => {
            const range = document.querySelector("#time input");
            range.value = String(part);
            range.dispatchEvent(new Event("input"));
        }""",
        round(1000 * seconds / 180),
    )
    page.wait_for_selector("body.past")


def test_the_time_line_moves_the_map(page):
    scrub(page, 90)
    page.wait_for_function(
        "() => document.querySelectorAll('[data-node=dgx-0] .g.held').length === 2"
    )
    assert "As at" in page.locator("#state").inner_text()
    page.get_by_role("button", name="Now").click()
    page.wait_for_function("() => !document.querySelector('[data-node=dgx-0] .g.held')")


def test_the_address_has_the_moment_that_is_shown(page):
    scrub(page, 90)
    page.wait_for_function("() => location.hash.includes('?at=')")
    query = page.url.partition("?")[2]
    assert abs(int(query.removeprefix("at=")) - START - 90) < 30
    open_view(page, "node/dgx-0")
    page.wait_for_function("hash => location.hash === hash", arg=f"#/node/dgx-0?{query}")

    page.reload()
    page.wait_for_selector("body.past")
    assert page.url.endswith(f"#/node/dgx-0?{query}")
    page.get_by_role("button", name="Now").click()
    page.wait_for_function("() => location.hash === '#/node/dgx-0'")


def test_the_time_line_moves_the_free_sets(page):
    open_view(page, "sets")
    page.wait_for_selector("h1:text-is('Free sets')")
    assert page.locator(".size > b").first.inner_text() == "2"
    scrub(page, 90)
    page.wait_for_selector("h1:has-text('Free sets at')")
    assert page.locator(".size > b").first.inner_text() == "1"
    page.locator(".slots summary").click()
    assert "team/vgg" in page.locator(".slots table").inner_text()


def test_the_time_line_moves_a_gang(page):
    scrub(page, 30)
    open_view(page, "gang/team/vgg")
    page.wait_for_selector(".why:has-text('4 GPUs each')")
    scrub(page, 90)
    page.wait_for_selector(".status:has-text('had GPUs')")
    assert violations(page) == []
    assert page.locator("rect.tile.placed").count() == 2
    assert page.locator(".changes li").count() == 1
    scrub(page, 150)
    page.wait_for_selector(".empty:has-text('nothing of this name had GPUs')")
    page.get_by_role("button", name="Now").click()
    page.wait_for_selector(".empty:has-text('There is no gang')")


def test_the_time_line_moves_a_node(page):
    open_view(page, "node/dgx-0")
    page.wait_for_selector(".status:has-text('ready')")
    scrub(page, 90)
    page.wait_for_selector(".status:has-text('took pods')")
    assert violations(page) == []
    assert page.locator("rect.tile.placed").count() == 2
    text = page.locator("main").inner_text()
    assert "6 of 8 GPUs free" in text
    assert "2 pods had GPUs" in text
    assert "team/vgg-1" in text
    scrub(page, 30)
    page.wait_for_selector("h2:has-text('No pod had a GPU here')")
    page.get_by_role("button", name="Now").click()
    page.wait_for_selector(".status:has-text('ready')")


def test_the_view_of_namespaces_shows_an_earlier_moment(page):
    open_view(page, "namespaces")
    page.wait_for_selector("h1:has-text('namespace')")
    scrub(page, 90)
    page.wait_for_selector("h1:has-text('namespace at ')")
    assert "until" in page.locator("p.quiet").first.inner_text()
