"""Pods come and go for a long time: neither the server of the live page nor the page grows."""

import time

import pytest
from controlplane.soak import often
from support.browser import NEEDS_CHROMIUM, new_context, new_page, running_chromium
from support.dashboard_process import ChangingCluster, resident, running_dashboard

NODES, PODS = 128, 20
"""Nodes, and pods that are created in a second; as many, less one, are deleted."""
SECONDS = often(20, 600)
SERVER, HEAP, GROWTH = 200.0, 20.0, 2.0
"""The memory of the server, and of the page's objects, and how much the latter may grow [MB]."""
ELEMENTS = 3000


@NEEDS_CHROMIUM
@pytest.mark.timeout(1800)
def test_20_pods_a_second_come_and_go_and_neither_server_nor_page_grows(tmp_path):
    with (
        ChangingCluster(NODES) as cluster,
        running_chromium() as browser,
    ):
        cluster.change(200, 0)
        with running_dashboard("--kubeconfig", cluster.write_kubeconfig(tmp_path)) as (url, server):
            page = new_page(new_context(browser, 1400, "light"), url)
            page.goto(url)
            shown(page, cluster.pods)
            first = page_memory(page)
            for _ in range(SECONDS):
                end = time.monotonic() + 1
                cluster.change(PODS, PODS - 1)
                shown(page, cluster.pods)
                # The pace is what a soak is about.
                time.sleep(max(0, often(0, 1) and end - time.monotonic()))
            heap, elements = page_memory(page)
            memory = resident(server)
            print(f"\nserver {memory:.0f} MB; page {first} to {heap:.1f} MB, {elements} elements")
            assert memory < SERVER
            assert heap < min(HEAP, first[0] + GROWTH)
            assert elements < ELEMENTS
            assert page.problems == []


def shown(page, pods):
    """Wait until the page counts so many GPUs of pods."""
    page.wait_for_function(
        "pods => document.querySelector('.fact:nth-child(4) b')?.textContent === pods",
        arg=f"{pods:,}",
    )


def page_memory(page):
    """Return the objects of the page [MB] and its elements, after a collection of garbage."""
    client = page.context.new_cdp_session(page)
    client.send("HeapProfiler.enable")
    client.send("HeapProfiler.collectGarbage")
    client.send("Performance.enable")
    metrics = client.send("Performance.getMetrics")["metrics"]
    found = {metric["name"]: metric["value"] for metric in metrics}
    client.detach()
    return found["JSHeapUsedSize"] / 1e6, int(found["Nodes"])
