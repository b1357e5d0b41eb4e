"""Texts and connections of hostile clients, on a real API server: only they are worse off.

`/validate` is called as every pod in the cluster can call it: over HTTPS, without a certificate.
"""

import json
import re
import ssl
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from socket import create_connection
from urllib.request import urlopen

import pytest
from controlplane.api import refusal
from controlplane.dryruns import person
from controlplane.load import Load
from controlplane.process import wait_until
from controlplane.process_limits import memory, restart_peak

from linkwise.cluster import keys
from linkwise.policy.problem import MAX_BYTES
from linkwise.runtime.http.limits import Limits

MIB = 1 << 20
GROWTH = 64 * MIB
"""What the process that admits pods may grow by: bodies, and what the allocator keeps."""
GRANTED = 512 * MIB
"""Of the webhook's pod, by its manifest: of both processes together."""
ANSWER = 64 << 10
LIMITS = Limits()
JSON = "application/json"
POLICY = (keys.POLICY_NAMESPACE, keys.POLICY_NAME, keys.POLICY_KEY)
PROFILES = (keys.PROFILE_NAMESPACE, keys.PROFILE_NAME, keys.PROFILE_KEY)
SELECTOR = {"name": "a", "effect": {"labels": {"k": "v"}}}
ALIASES = f"a: &a {'x' * 5000}\nb: [{'*a,' * 34_000}]\n"
TEXTS = {
    "aliases": (POLICY, lambda: ALIASES),
    "a number and quotes": (PROFILES, lambda: "[" + "9" * 5000 + '"' + '\\"' * 80_000),
    "3.4 MiB of YAML": (POLICY, lambda: "a: [" + "1," * 1_700_000 + "]"),
    "60,000 selectors": (PROFILES, lambda: json.dumps([SELECTOR] * 60_000)),
    "256 KiB of unknown keys": (POLICY, lambda: "\n".join(f"k{i}: 1" for i in range(26_000))),
}
DRY_RUNS = {
    "aliases": lambda: (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  a: &a "
        f"{'x' * 50_000}\n  b: [{'*a,' * 10_000}]\n"
    ),
    "85,000 small documents": lambda: "{}\n" * 85_000,
}


def a_pod(number):
    container = {"name": "main", "image": "registry.example/none"}
    container["resources"] = {"limits": {keys.GPU_WHOLE: "1"}}
    return {"metadata": {"name": f"pod-{number}"}, "spec": {"containers": [container]}}


@pytest.fixture
def load(webhook, namespace):
    """Pods of an honest tenant, created one after another while a test runs."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    with Load(webhook.plane.api, path, a_pod, clients=2) as load:
        yield load


def all_were_served(load):
    load.goes_on()
    assert load.failed == []
    gates = [pod["spec"].get("schedulingGates") for pod in load.created]
    assert all(gate == [{"name": keys.GANG}] for gate in gates)


def context(webhook):
    return ssl.create_default_context(cadata=webhook.ca.cert_pem.decode())


def post(webhook, port, path, body, kind=JSON, **headers):
    """Return the status and the body of an answer; status 0 where the connection was closed."""
    connection = HTTPSConnection("127.0.0.1", port, timeout=60, context=context(webhook))
    try:
        connection.request("POST", path, body, {"Content-Type": kind, **headers})
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, HTTPException):
        return 0, b""
    finally:
        connection.close()


def review(home, text):
    namespace, name, key = home
    request = {
        "uid": "u",
        "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
        "operation": "CREATE",
        "namespace": namespace,
        "name": name,
        "object": {"data": {key: text}},
    }
    return json.dumps(
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    ).encode()


def children(webhook):
    pid = webhook.process.pid
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def dropped(webhook, reason):
    with urlopen(f"{webhook.probes}/metrics", timeout=30) as answer:  # noqa: S310
        shown = answer.read().decode()
    name = f'linkwise_http_dropped_connections_total{{reason="{reason}"}}'
    return float(re.search(rf"^{re.escape(name)} (\S+)$", shown, re.MULTILINE)[1])


@pytest.mark.parametrize(("home", "made"), TEXTS.values(), ids=TEXTS.keys())
def test_a_hostile_text_is_answered_shortly_and_takes_no_memory(webhook, load, home, made):
    before = restart_peak(webhook.process.pid)
    body = review(home, made())

    answers = [post(webhook, webhook.ports[0], "/validate", body) for _ in range(2)]

    # Where the machine stands still, a body is late.
    assert {status for status, _ in answers} <= {200, 408, 503}
    for status, answer in answers:
        assert len(answer) < ANSWER
        assert status != 200 or not json.loads(answer)["response"]["allowed"]
    all_were_served(load)
    assert memory(webhook.process.pid, "VmHWM") < before + GROWTH + 2 * len(body)
    assert sum(memory(pid, "VmHWM") for pid in (webhook.process.pid, *children(webhook))) < GRANTED


@pytest.mark.parametrize("made", DRY_RUNS.values(), ids=DRY_RUNS.keys())
def test_a_hostile_dry_run_is_answered_and_takes_no_memory(webhook, load, namespace, made):
    token = person(webhook, namespace).token
    before = restart_peak(webhook.process.pid)
    headers = {"Authorization": f"Bearer {token}"}

    status, _ = post(
        webhook,
        webhook.ports[1],
        f"/v1/dry-run?namespace={namespace}",
        made().encode(),
        "application/yaml",
        **headers,
    )

    assert status in {400, 408, 413, 503}
    all_were_served(load)
    assert memory(webhook.process.pid, "VmHWM") < before + GROWTH
    assert sum(memory(pid, "VmHWM") for pid in (webhook.process.pid, *children(webhook))) < GRANTED


def test_pods_are_admitted_while_all_of_it_goes_on(webhook, load, namespace):
    token = person(webhook, namespace).token
    bodies = [review(home, made()) for home, made in TEXTS.values()]
    manifests = [made().encode() for made in DRY_RUNS.values()]

    def attack(number):
        post(webhook, webhook.ports[0], "/validate", bodies[number % len(bodies)])
        manifest = manifests[number % len(manifests)]
        kind, bearer = "application/yaml", {"Authorization": f"Bearer {token}"}
        post(webhook, webhook.ports[1], "/v1/dry-run", manifest, kind, **bearer)

    with ThreadPoolExecutor(4) as attackers:
        list(attackers.map(attack, range(len(TEXTS) * len(DRY_RUNS))))

    all_were_served(load)


def test_a_text_that_is_too_long_is_refused_with_the_limit(policy):
    policy("strict: true")

    message = refusal(lambda: policy("#" * (MAX_BYTES + 1)))

    assert f"at most {MAX_BYTES} are read" in message


def test_half_sent_bodies_leave_others_their_connections(webhook, load):
    head = f"POST /mutate HTTP/1.1\r\nHost: a\r\nContent-Type: {JSON}\r\n"
    half = f"{head}Content-Length: 1000\r\n\r\n{{".encode()
    before = dropped(webhook, "half-sent")
    address, trusted = ("127.0.0.1", webhook.ports[0]), context(webhook)
    with ExitStack() as stack:

        def connect():
            plain = create_connection(address, timeout=60)
            return stack.enter_context(trusted.wrap_socket(plain, server_hostname="127.0.0.1"))

        others = [HTTPSConnection(*address, timeout=60, context=trusted) for _ in range(124)]
        for one in others:
            stack.callback(one.close)
            one.request("POST", "/validate", b"{}", {"Content-Type": JSON})
            assert one.getresponse().read()
        kept = [one.sock for one in others]

        def open_one(_):
            with suppress(OSError):
                connect().sendall(half)

        with ThreadPoolExecutor(4) as clients:
            list(clients.map(open_one, range(1020)))

        # How many depends on the machine: each ends by itself after some seconds.
        wait_until(lambda: dropped(webhook, "half-sent") > before, "some of them are dropped")
        for one in others:
            one.request("POST", "/validate", b"{}", {"Content-Type": JSON})
            assert one.getresponse().read()
        # A connection that was dropped would have been opened again.
        assert [one.sock for one in others] == kept
        all_were_served(load)
