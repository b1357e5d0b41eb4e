"""The page under attack in a real browser: hostile texts in every field, and other origins."""

import json
from dataclasses import replace
from urllib.parse import quote

import pytest
from support.browser import NEEDS_CHROMIUM, new_context, new_page, running_chromium
from support.builders import dgx1_v100
from support.dashboard_process import ChangingCluster, running_dashboard

from linkwise.cluster import keys
from linkwise.cluster.gang import GangKey, Link
from linkwise.cluster.nodes.topology_configmap import PublishedTopology, write_published
from linkwise.planning.gang.crd import name_of

pytestmark = NEEDS_CHROMIUM
REVERSED = "\u202e"
"""Reverses the text after it."""
H = f"<img src=x onerror=alert(1)>'\"&{REVERSED}x"
NODE = f"gpu {H}"
NAMESPACE = f"team {H}"
CONFIGMAPS = f"/api/v1/namespaces/{keys.TOPOLOGY_NAMESPACE}/configmaps"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
MANIFEST = f"""apiVersion: v1
kind: Pod
metadata:
  name: |-
    {H}
  labels: {{"{keys.COMPUTE_CLASS}": "<b>"}}
  annotations: {{"{keys.GANG}": "<i>", "{keys.GANG_SIZE}": "<u>"}}
spec:
  containers:
  - {{name: "<s>", image: "<a>", resources: {{limits: {{aliyun.com/gpu: "<p>"}}}}}}
"""
VIEWS = (
    ("fleet", "a.node"),
    ("sets", "h1"),
    (f"node/{quote(NODE)}", "h1"),
    (f"node/{quote(f'claims {H}')}", "h1, .empty"),
    ("waiting", ".unit-row"),
    (f"gang/{quote(NAMESPACE)}/{quote(H)}", "h1"),
    (f"gang/{quote(NAMESPACE)}/{quote('waits ' + H)}", "h1"),
    (f"pod/{quote(NAMESPACE)}/{quote('shared ' + H)}", "h1"),
    ("namespaces", "h1"),
    (f"{quote(H)}/{quote(H)}", "a.node"),
    (f"node/{quote(H)}", ".empty"),
)


def pod(name, limits, node=None, **annotations):
    spec = {"containers": [{"name": H, "image": H, "resources": {"limits": limits}}]}
    if node:
        spec["nodeName"] = node
    else:
        spec["schedulingGates"] = [{"name": keys.GANG}]
    labels = {keys.MODEL_SERIES: H, "app": H}
    return {"metadata": {"annotations": annotations, "labels": labels, "name": name}, "spec": spec}


def hostile_devices():
    """Yield a slice of NVIDIA's DRA driver, and a claim for one of its devices."""
    name = f"claims {H}"
    labels = {keys.NODE_MODE: "topology"}
    status = {"allocatable": {"cpu": "8", "memory": "64Gi"}}
    yield f"/api/v1/nodes/{name}", {"metadata": {"labels": labels}, "status": status}
    attributes = {
        "type": {"string": "gpu"},
        **{key: {"string": H} for key in ("uuid", "productName", "architecture", H)},
    }
    device = {"name": H, "attributes": attributes, "capacity": {"memory": {"value": "80Gi"}}}
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    slices = {"driver": "gpu.nvidia.com", "nodeName": name, "pool": pool, "devices": [device]}
    devices = "/apis/resource.k8s.io/v1"
    yield f"{devices}/resourceslices/{H}", {"metadata": {}, "spec": slices}
    result = {"request": H, "driver": "gpu.nvidia.com", "pool": name, "device": H}
    allocation = {"devices": {"results": [result]}}
    claim = {"metadata": {}, "spec": {}, "status": {"allocation": allocation}}
    yield f"{devices}/namespaces/{NAMESPACE}/resourceclaims/{H}", claim


def hostile_objects():
    """Yield objects by their paths: each text that a tenant, an agent or a provider writes."""
    pools = dict.fromkeys((*keys.NODE_POOLS, keys.GFD_PRODUCT, keys.RACK, keys.NODE_PLACEMENT), H)
    amounts = {keys.GPU_WHOLE: "8", "cpu": "8", "memory": "64Gi"}
    for name in (NODE, f"unreadable {H}"):
        yield (
            f"/api/v1/nodes/{name}",
            {
                "metadata": {
                    "labels": {keys.NODE_MODE: "topology", **pools},
                    "annotations": {keys.CORDON: H, H: H},
                },
                "spec": {"taints": [{"key": H, "value": H, "effect": H}]},
                "status": {
                    "allocatable": amounts,
                    "addresses": [{"type": "InternalIP", "address": H}],
                    "conditions": [{"type": "Ready", "status": H, "reason": H, "message": H}],
                },
            },
        )
        machine = replace(
            dgx1_v100(), model=H, gpus=tuple(replace(g, uuid=H) for g in dgx1_v100().gpus)
        )
        topology = PublishedTopology(machine, (True,) * 8, mismatch=H)
        data = write_published(topology, [[0.0] * 8] * 8)
        labels = {keys.NODE_MODE: "topology", keys.TOPOLOGY_NODE: name}
        yield f"{CONFIGMAPS}/topology-{len(name)}", {"metadata": {"labels": labels}, "data": data}
        unhealthy = {"metadata": {}, "data": {keys.UNHEALTHY_KEY: H}}
        yield f"{CONFIGMAPS}/{keys.UNHEALTHY_NAME_PREFIX}{name}", unhealthy
    gang = {keys.GANG: H, keys.GANG_SIZE: "1"}
    record = json.dumps({"v": 1, "node": NODE, "gpus": [{"i": 0}]})
    one = {keys.GPU_WHOLE: "1"}
    yield f"{PODS}/held {H}", pod("a", one, NODE, **gang, **{keys.ALLOCATION: record})
    unreadable = {keys.ALLOCATION: H, keys.ISOLATION: H, keys.VISIBLE_DEVICES: H}
    yield f"{PODS}/shared {H}", pod("b", one, f"unreadable {H}", **unreadable)
    waits = {keys.GANG: f"waits {H}", keys.GANG_SIZE: H}
    yield f"{PODS}/waits {H}", pod("c", {keys.GPU_WHOLE: "99"}, **waits)
    yield f"{PODS}/amount {H}", pod("d", {keys.GPU_WHOLE: H, keys.GPU_MEM: H})
    yield from hostile_devices()
    yield f"/api/v1/namespaces/{NAMESPACE}", {"metadata": {"labels": {H: H}, "annotations": {H: H}}}
    owned = pod("e", one)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": H, "uid": H, "controller": True}
    owned["metadata"]["ownerReferences"] = [owner]
    yield f"{PODS}/owned {H}", owned
    job = {"metadata": {"uid": H, "labels": {H: H}}, "spec": {"parallelism": 2, "completions": H}}
    yield f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/{H}", job
    budget = {"metadata": {}, "spec": {"minAvailable": H, "selector": {"matchLabels": {"app": H}}}}
    yield f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets/{H}", budget
    condition = dict.fromkeys(("type", "status", "lastTransitionTime", "reason", "message"), H)
    yield (
        f"/apis/linkwise.dev/v1alpha1/namespaces/{NAMESPACE}/gangs/"
        + name_of(GangKey(NAMESPACE, H, "")),
        {
            "metadata": {"annotations": {keys.MOVED: H}},
            "spec": {"gang": H, "link": Link.BEST},
            "status": {"members": H, "nodes": H, "reason": H, "conditions": [condition]},
        },
    )


@pytest.fixture(scope="module")
def cluster():
    """An API server of hostile objects."""
    with ChangingCluster(1) as running:
        for path, body in hostile_objects():
            running.put(path, body)
        yield running


@pytest.fixture(scope="module")
def address(cluster, tmp_path_factory):
    """The page of this cluster."""
    config = cluster.write_kubeconfig(tmp_path_factory.mktemp("config"))
    with running_dashboard("--kubeconfig", config) as (url, _):
        yield url


@pytest.fixture(scope="module")
def chromium():
    with running_chromium() as browser:
        yield browser


@pytest.fixture
def page(chromium, address):
    page = new_page(new_context(chromium, 1400, "light"), address)
    yield page
    assert page.problems == []
    page.context.close()


def foreign(page):
    """Return what markup of a tenant would have made, and texts that change their direction."""
    return page.evaluate(
        """reversed => [...document.querySelectorAll("*")].filter(one =>
            ["IMG", "IFRAME", "B", "I", "U", "S", "P", "A"].includes(one.tagName)
                && one.attributes.length && [...one.attributes].some(each => /^on/.test(each.name))
            || ["IMG", "IFRAME"].includes(one.tagName)).map(one => one.outerHTML)
            .concat([document.body.innerText, document.title].filter(each =>
                each.includes(reversed)))
            .concat([...document.querySelectorAll("[title], [aria-label]")].map(one =>
                `${one.title}${one.ariaLabel}`).filter(text => text.includes(reversed)))""",
        REVERSED,
    )


@pytest.mark.parametrize(("view", "shows"), VIEWS, ids=[view[:20] for view, _ in VIEWS])
def test_hostile_texts_in_every_field_are_texts(page, address, view, shows):
    page.goto(f"{address}#/{view}")
    page.wait_for_selector(shows)

    assert foreign(page) == []
    text = page.locator("body").inner_text()
    assert view in {"namespaces", "sets"} or "<img src=x onerror=alert(1)>" in text + page.title()


def test_hostile_texts_of_a_manifest_are_texts(page, address):
    page.goto(f"{address}#/try")
    page.fill("#manifest", MANIFEST)
    page.get_by_role("button", name="Try it").click()
    page.wait_for_selector(".finding, main .notice")

    assert foreign(page) == []
    assert not page.locator("main s, main u").count()


def test_a_page_of_another_origin_learns_nothing_though_it_knows_the_address(
    chromium, cluster, address
):
    context = new_context(chromium, 1400, "light")
    page = context.new_page()
    # On this machine as well: browsers keep pages of other machines away from it.
    page.goto(f"{cluster.url}/api/v1/namespaces")
    answers = page.evaluate(
        """async address => {
            const ask = (path, options) => fetch(address + path, options).then(
                async answer => `${answer.type} ${await answer.text()}`, () => "refused");
            const load = (tag, attribute, path) => new Promise(done => {
                const made = document.createElement(tag);
                made.onload = () => done("loaded");
                made.onerror = () => done("refused");
                made[attribute] = address + path;
                document.body.append(made);
            });
            const listen = path => new Promise(done => {
                const stream = new EventSource(address + path);
                stream.onmessage = () => done("message");
                stream.onerror = () => done("refused");
            });
            return [
                await ask("api/namespaces"),
                await ask("api/namespaces", {mode: "no-cors"}),
                await ask("api/trial", {method: "POST", mode: "no-cors", body: "x"}),
                await load("script", "src", "app.js"),
                await load("img", "src", "api/namespaces"),
                await listen("api/events"),
            ];
        }""",
        address,
    )

    assert all(answer in {"refused", "opaque "} for answer in answers), answers
    context.close()
