"""The page in the cluster in a real browser: a person pastes a token."""

import asyncio

from support.browser import NEEDS_CHROMIUM, new_context, new_page, running_chromium, violations
from support.dashboard import JOB, placed_pod

pytestmark = NEEDS_CHROMIUM
ASKED = "Failed to load resource: the server responded with a status of 401 (Unauthorized)"
FORBIDDEN = "Failed to load resource: the server responded with a status of 403 (Forbidden)"


def sign_in(page, token):
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Show the cluster").click()


async def test_a_person_pastes_a_token_once(serving):
    own = placed_pod("own-0", 7, gang="own").replace("namespace: team", "namespace: red")
    async with serving(placed_pod("vgg-0", 0), own) as served:
        mine = served.api.user("bea", "red")
        poor = served.api.user("eve", nodes=False)

        def look():
            with running_chromium() as browser:
                page = new_page(new_context(browser, 1400, "light"), served.url)
                page.goto(served.url)
                page.wait_for_selector("dialog[open]")
                assert "dgx" not in page.locator("main").inner_text()
                assert violations(page) == []

                page.keyboard.press("Escape")
                assert page.locator("dialog[open]").count() == 1
                sign_in(page, "wrong")
                page.wait_for_selector("#token-reason:has-text('not accepted')")
                sign_in(page, poor)
                page.wait_for_selector("#token-reason:has-text('ClusterRole')")
                sign_in(page, f" {mine}\n")
                page.wait_for_selector("#state:has-text('Live')")
                page.wait_for_selector("dialog", state="detached")
                page.wait_for_selector(".notice:has-text('You may list the pods')")

                page.goto(f"{served.url}#/node/dgx-0")
                page.wait_for_selector("main:has-text('another namespace')")
                assert "vgg" not in page.locator("body").inner_text()
                assert violations(page) == []
                page.goto(f"{served.url}#/try")
                page.get_by_label("Manifest").fill(JOB.replace("GPUS", "2"))
                page.get_by_role("button", name="Try it").click()
                page.wait_for_selector("main:has-text('2 of 2 pods would be placed')")

                assert mine not in page.content()
                kept = "JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])"
                assert page.evaluate(kept) == '[{},{},""]'
                assert mine not in page.url
                assert set(page.problems) <= {ASKED, FORBIDDEN}

                page.reload()
                page.wait_for_selector("dialog[open]")

        await asyncio.to_thread(look)
