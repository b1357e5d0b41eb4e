"""Chromium, and pages in it that collect their problems."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from support import chromium

NEEDS_CHROMIUM = pytest.mark.skipif(
    chromium.CHROMIUM is None,
    reason="no chromium is installed here; Debian's package chromium has it",
)


@contextmanager
def running_chromium() -> Iterator[Browser]:
    """Run Chromium without a window."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium.__file__, args=["--no-sandbox"]
        )
        yield browser
        browser.close()


def new_context(browser: Browser, width: int, scheme: str) -> BrowserContext:
    """Return a context whose pages are so wide [px], in the colours of this scheme."""
    return browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)


def new_page(context: BrowserContext, own: str) -> Page:
    """Return a page with `problems`: errors, messages, dialogs, and requests beyond `own`.

    Args:
        context: Of the page.
        own: What the addresses begin with that the page may ask.
    """
    page = context.new_page()
    page.problems = []
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    page.on("console", lambda message: page.problems.append(message.text))
    page.on("dialog", lambda dialog: page.problems.append(dialog.message))
    page.on(
        "request",
        lambda request: None if request.url.startswith(own) else page.problems.append(request.url),
    )
    return page


def violations(page: Page) -> list[str]:
    """Return what axe finds wrong with the accessibility of a page: rule, impact and elements."""
    found = Axe().run(page).response["violations"]
    return [
        f"{each['id']} ({each['impact']}): {[node['html'] for node in each['nodes']][:5]}"
        for each in found
    ]
