"""`linkwise dashboard` on a real API server: what it shows follows the cluster."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from controlplane.credentials import kubeconfig
from controlplane.gangs import make_gang, make_stateful_gang
from controlplane.nodes import unhealthy
from controlplane.pods import container
from controlplane.process import wait_until
from controlplane.relay import Relay
from support.browser import NEEDS_CHROMIUM, new_context, new_page, running_chromium

from linkwise.cluster import keys

LINKWISE = Path(sys.executable).with_name("linkwise")
DGX = {"machine": "dgx1-v100", "mode": "topology"}
MOVES = """
apiVersion: linkwise.dev/v1alpha1
kind: Policy
machines: [{nodeLabels: {ack.node.gpu.schedule: topology}, machine: dgx1-v100}]
gangs: {onFault: evict, onFaultSeconds: 1}
"""
TRIED = f"""
apiVersion: batch/v1
kind: Job
metadata: {{name: tried}}
spec:
  parallelism: 2
  completions: 2
  template:
    spec:
      restartPolicy: Never
      containers: [{{name: main, image: train, resources: {{limits: {{{keys.GPU_WHOLE}: 2}}}}}}]
"""


class Page:
    """What the page of a dashboard gets."""

    def __init__(self, url):
        self.url, self.last, self.rows, self.facts = url, "", {}, {}

    def get(self, view):
        with urlopen(f"{self.url}api/{view}", timeout=60) as response:  # noqa: S310
            return json.loads(response.read())

    def follow(self):
        """Take the next event."""
        request = Request(f"{self.url}api/events", headers={"Last-Event-ID": self.last})  # noqa: S310
        with urlopen(request, timeout=60) as response:  # noqa: S310
            text = response.read().decode()
        fields = dict(line.split(": ", 1) for line in text.strip().split("\n"))
        update, self.last = json.loads(fields["data"]), fields["id"]
        self.facts = update["facts"]
        if update["full"]:
            self.rows = {}
        self.rows.update({row[0]: row for row in update["nodes"]})
        for name in update["gone"]:
            del self.rows[name]

    def holders(self):
        """Return the nodes of each gang."""
        return {(pod[1], name) for name, row in self.rows.items() for pod in row[-1] if pod[1]}


@pytest.fixture
def dashboard(plane):
    started = []

    def start(config=None):
        arguments = [
            LINKWISE,
            "dashboard",
            "--no-browser",
            "--kubeconfig",
            config or plane.kubeconfig,
        ]
        process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
        started.append(process)
        page = Page(re.search(r"http://\S+", process.stdout.readline())[0])
        page.follow()
        return page

    yield start
    for process in started:
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        process.stdout.close()


@pytest.fixture
def healing(policy, placing_on_described_nodes):
    """A scorer that moves gangs off faults."""
    del placing_on_described_nodes  # It writes another policy, so that it comes first.
    policy(MOVES)


def until(page, condition, what):
    """Follow the events until a condition holds."""

    def holds():
        if not condition():
            page.follow()
        return condition()

    wait_until(holds, what, 120)


@pytest.mark.usefixtures("placing_on_described_nodes")
def test_a_gang_is_seen_waiting_then_placed_then_gone(nodes, pods, dashboard):
    nodes({**DGX, "name": "gpu", "count": 2})
    page = dashboard()
    until(page, lambda: {"gpu-0", "gpu-1"} <= page.rows.keys(), "the nodes are shown")
    gang = f"{pods.namespace}/train"

    make_gang(pods, "train", 3, 8)
    until(page, lambda: page.facts["waiting"], "the gang is counted")
    waiting = lambda: [unit for unit in page.get("waiting") if unit["name"] == "train"]  # noqa: E731
    until(page, lambda: len(waiting()) == 1 and waiting()[0]["pods"] == 3, "all members wait")
    assert waiting()[0]["never"]
    [view] = page.get(f"unit?kind=gang&namespace={pods.namespace}&name=train")
    assert view["unit"]["state"] in {"waits", "never"}

    nodes({**DGX, "name": "more"})
    until(
        page,
        lambda: (
            {node for name, node in page.holders() if name == gang} == {"gpu-0", "gpu-1", "more"}
        ),
        "the gang is placed",
    )
    until(page, lambda: not waiting(), "it waits no more")
    [view] = page.get(f"unit?kind=gang&namespace={pods.namespace}&name=train")
    assert view["unit"]["state"] == "placed"
    assert view["plan"]["nodes"] == view["unit"]["nodes"]
    assert len(view["nodes"]) == 3
    assert view["changes"][0]["kind"] == "allocated"
    got = {place["node"] for change in view["changes"] for place in change["after"]}
    assert got == {"gpu-0", "gpu-1", "more"}

    pods.clear()
    until(page, lambda: not any(name == gang for name, _ in page.holders()), "it is gone")
    past = page.get(f"past?at={int(page.facts['start']) + 1}")
    assert {row[0] for row in past["nodes"]} <= {"gpu-0", "gpu-1", "more"}


@NEEDS_CHROMIUM
@pytest.mark.usefixtures("placing_on_described_nodes")
def test_a_person_tries_a_manifest_and_sees_a_gang_wait_then_placed_then_gone(
    nodes, pods, dashboard
):
    nodes({**DGX, "name": "gpu"})
    url, gang = dashboard().url, f"{pods.namespace}/train"
    with running_chromium() as browser:
        page = new_page(new_context(browser, 1400, "light"), url)
        page.set_default_timeout(120_000)
        page.goto(f"{url}#/try")
        page.fill("#manifest", TRIED)
        page.get_by_role("button", name="Try it").click()
        page.wait_for_selector("main:has-text('2 of 2 pods would be placed')")
        assert page.locator("main rect.tile.placed").count() == 4
        assert pods.all() == {}

        page.goto(f"{url}#/waiting")
        make_gang(pods, "train", 2, 8)
        page.wait_for_selector(".unit-row:has-text('2 waiting')")
        page.get_by_role("link", name="train").click()
        page.wait_for_selector(".why")

        nodes({**DGX, "name": "more"})
        page.wait_for_selector(".title .status:has-text('placed')")
        page.wait_for_selector(".changes li:has-text('Allocated')")
        page.goto(f"{url}#/node/more")
        page.wait_for_selector(f"main:has-text('{gang}')")
        assert page.locator("rect.tile.placed").count() == 8

        pods.clear()
        page.wait_for_function(
            "gang => !document.querySelector('main').textContent.includes(gang)", arg=gang
        )
        assert page.locator("rect.tile").count() == 8
        assert page.locator("rect.tile.placed").count() == 0
        assert page.problems == []


@NEEDS_CHROMIUM
@pytest.mark.usefixtures("healing")
def test_two_tabs_show_a_gang_drained_and_healed_and_an_api_server_away_and_back(
    plane, nodes, pods, dashboard, tmp_path
):
    nodes({**DGX, "name": "gpu", "count": 2})
    config = tmp_path / "config"
    with (
        Relay(lambda: (plane.site.ports["kube-apiserver"],)) as relay,
        running_chromium() as browser,
    ):
        config.write_text(kubeconfig(relay.server, plane.ca_file, plane.api.token))
        url, gang = dashboard(config).url, f"{pods.namespace}/train"
        context = new_context(browser, 1400, "light")
        waiting, unit = new_page(context, url), new_page(context, url)
        for page, view in ((waiting, "waiting"), (unit, f"gang/{gang}")):
            page.set_default_timeout(120_000)
            page.goto(f"{url}#/{view}")
        unit.wait_for_selector(".empty:has-text('no gang')")

        make_stateful_gang(pods, "train", 3, {"containers": [container({keys.GPU_WHOLE: 8})]})
        waiting.wait_for_selector(".unit-row:has-text('3 waiting')")
        unit.wait_for_selector(".why")
        nodes({**DGX, "name": "more", "count": 2})
        placed(unit)
        waiting.wait_for_function(
            "() => !document.querySelector('main').textContent.includes('train')"
        )

        # No watch, and no new one.
        relay.refuses = True
        relay.cut()
        for page in (waiting, unit):
            page.wait_for_selector("#notices:has-text('is not watched now')")
            assert re.search(r"is of \d\d:\d\d:\d\d", page.locator("#notices").inner_text())
        unit.reload()
        placed(unit)
        unit.wait_for_selector("#state:has-text('Not up to date')")
        relay.refuses = False
        for page in (waiting, unit):
            page.wait_for_selector("#state:has-text('Live')")
            assert page.locator("#notices").inner_text() == ""

        free = ({"gpu-0", "gpu-1", "more-0", "more-1"} - homes(unit)).pop()
        drained = min(homes(unit))
        assert plane.kubectl("drain", drained, "--force", "--grace-period=0").returncode == 0
        unit.wait_for_selector(f".changes li:has-text('{free}')")
        placed(unit)
        assert homes(unit) == {"gpu-0", "gpu-1", "more-0", "more-1"} - {drained}
        waiting.goto(f"{url}#/node/{drained}")
        waiting.wait_for_selector(".title:has-text('unschedulable')")
        plane.kubectl("uncordon", drained)
        waiting.wait_for_selector(".title:has-text('ready')")

        failed = min(homes(unit))
        with unhealthy(plane.api, failed, 3):
            unit.wait_for_selector(".history li:has-text('Moved off a fault')")
            placed(unit)
            unit.wait_for_selector(f".figures h2:has-text('{drained}')")
            assert failed not in homes(unit)
            waiting.goto(f"{url}#/node/{failed}")
            waiting.wait_for_selector("main:has-text('1 GPU unhealthy')")
        assert waiting.problems == unit.problems == []


def placed(page):
    page.wait_for_selector(".title .status:has-text('placed')")


def homes(page):
    """Return the nodes that the view of a gang draws."""
    return set(page.locator(".figures h2").all_inner_texts())


@pytest.mark.usefixtures("webhook")
def test_the_role_that_ships_is_enough(plane, nodes, namespace, dashboard, tmp_path):
    nodes({**DGX, "name": "gpu", "count": 2})
    plane.kubectl("create", "serviceaccount", "bea", f"--namespace={namespace}")
    subject = f"--serviceaccount={namespace}:bea"
    plane.kubectl("create", "clusterrolebinding", "bea", "--clusterrole=linkwise-view", subject)
    try:
        config = tmp_path / "bea"
        config.write_text(kubeconfig(plane.server, plane.ca_file, plane.token(namespace, "bea")))
        inspect = [LINKWISE, "inspect", "-q", "--kubeconfig", config]
        counts = lambda: subprocess.run(inspect, capture_output=True, check=False).returncode == 0  # noqa: E731
        wait_until(counts, "the role counts", 60)

        page = dashboard(config=config)
        nodes({**DGX, "name": "later"})
        until(page, lambda: "later" in page.rows, "the new node is shown")

        assert page.facts["problem"] == ""
        assert any("linkwise-view" in warning for warning in page.facts["warnings"])
    finally:
        plane.kubectl("delete", "clusterrolebinding", "bea")
