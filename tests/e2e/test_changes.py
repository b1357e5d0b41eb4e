"""Profiles that change while pods are being created, with two replicas of the webhook."""

import json
from base64 import b64decode
from time import monotonic
from urllib.request import Request, urlopen

import jsonpatch
import pytest
from controlplane.api import refusal
from controlplane.installation import run_installation
from controlplane.load import Load
from controlplane.manifests import VALIDATING
from controlplane.pods import a_pod
from controlplane.process import wait_until
from controlplane.raw_requests import JSON, review
from controlplane.webhook import PATIENT, trusting

from linkwise.cluster import keys

BOUND = 2
"""From a change until both replicas have it [s]; of half of them: a machine may stand still."""
ENOUGH = 40
"""Pods that are looked at after each change."""
BROKEN = '[{"name": ""}]'


@pytest.fixture(scope="module")
def linkwise(plane):
    with run_installation(plane, replicas=2, seconds=PATIENT) as running:
        yield running


@pytest.fixture(scope="module")
def delays():
    """From each change until both replicas had it [s]."""
    seen = []
    yield seen
    assert sorted(seen)[len(seen) // 2] < BOUND


@pytest.fixture
def created(linkwise, namespace, delays):
    """Pods of class gpu-hpn, created by several clients all the while."""
    # No scheduler may look for a node for them.
    hold = [{"name": "example.com/hold"}]

    class Created:
        def __init__(self):
            self.begun = {}

        def body(self, number):
            name = f"pod-{number}"
            self.begun[name] = monotonic()
            labels = {keys.COMPUTE_CLASS: "gpu-hpn"}
            return a_pod(name, labels=labels, schedulingGates=hold)

        def since(self, begin):
            """Return the drivers of those that were not even asked for before a moment."""
            return [
                one["metadata"]["labels"].get(keys.DRIVER_VERSION)
                for one in list(load.created)
                if self.begun[one["metadata"]["name"]] >= begin
            ]

        def all_have(self, driver):
            """Wait until each replica has it, and look at pods from `BOUND` after now."""

            # An API server may send all calls to one replica, over the connections it has.
            def judged():
                return [driver_by(one, linkwise.plane) for one in linkwise.replicas]

            changed = monotonic()
            wait_until(lambda: judged() == [driver] * 2, "both replicas have the change")
            delays.append(monotonic() - changed)
            begin = max(monotonic(), changed + BOUND)
            wait_until(lambda: len(self.since(begin)) >= ENOUGH, "enough pods are created", 60)
            assert set(self.since(begin)) == {driver}
            assert judged() == [driver] * 2

    made = Created()
    pods = f"/api/v1/namespaces/{namespace}/pods"
    with Load(linkwise.plane.api, pods, made.body) as load:
        yield made
    assert load.failed == []


@pytest.fixture
def unguarded(plane):
    """What is written is not judged, as when the webhook is away."""
    hook = plane.api.get(VALIDATING)["webhooks"][0]
    path = "/webhooks/0/clientConfig/url"
    plane.api.patch(
        VALIDATING, [{"op": "replace", "path": path, "value": "https://127.0.0.1:1/"}], "json"
    )
    yield
    value = hook["clientConfig"]["url"]
    plane.api.patch(VALIDATING, [{"op": "replace", "path": path, "value": value}], "json")


def driver_by(replica, plane):
    """Return the driver that a replica alone gives a pod of class gpu-hpn."""
    pod = a_pod("asked", labels={keys.COMPUTE_CLASS: "gpu-hpn"})
    address = f"https://127.0.0.1:{replica.ports[0]}/mutate"
    post = Request(address, review(pod), {"Content-Type": JSON})
    with urlopen(post, timeout=30, context=trusting(plane)) as answer:  # noqa: S310
        response = json.load(answer)["response"]
    assert response["allowed"]
    patched = jsonpatch.apply_patch(pod, json.loads(b64decode(response.get("patch", "W10="))))
    return patched["metadata"]["labels"].get(keys.DRIVER_VERSION)


def giving(driver):
    """Return profiles that give the class a driver."""
    selector = {"matchLabels": {keys.COMPUTE_CLASS: "gpu-hpn"}}
    effect = {"labels": {keys.DRIVER_VERSION: driver}}
    return json.dumps([{"name": "hpn", "objectSelector": selector, "effect": effect}])


def complaints(plane):
    """Return what `kubectl get events` shows of the profiles."""
    about = f"involvedObject.kind=ConfigMap,involvedObject.name={keys.PROFILE_NAME}"
    shown = plane.kubectl(
        "get",
        "events",
        "--no-headers",
        f"--namespace={keys.PROFILE_NAMESPACE}",
        f"--field-selector=type=Warning,{about}",
    )
    return shown.stdout.splitlines()


def test_profiles_that_are_made_changed_and_deleted_are_in_force_after_two_seconds(
    created, profiles
):
    created.all_have(None)
    profiles(giving("1.5.0"))
    created.all_have("1.5.0")
    profiles(giving("1.5.1"))
    created.all_have("1.5.1")
    profiles(None)
    created.all_have(None)
    profiles(giving("1.5.4"))
    created.all_have("1.5.4")


def test_profiles_that_are_broken_are_refused_and_those_before_stay(created, profiles):
    profiles(giving("1.5.0"))
    created.all_have("1.5.0")

    reply = refusal(lambda: profiles("[{"))

    assert 'admission webhook "configmaps.linkwise.dev" denied the request' in reply
    assert "line 1" in reply
    created.all_have("1.5.0")


@pytest.mark.usefixtures("unguarded")
def test_broken_profiles_that_slip_by_change_nothing_and_one_event_says_why_until_they_are_mended(
    plane, created, profiles
):
    profiles(giving("1.5.0"))
    created.all_have("1.5.0")
    assert complaints(plane) == []

    wait_until(lambda: refusal(lambda: profiles(BROKEN)) == "", "the webhook no longer validates")
    created.all_have("1.5.0")
    wait_until(lambda: bool(complaints(plane)), "an event is written")
    (message,) = complaints(plane)
    assert "PolicyRefused" in message
    assert "line 1" in message
    assert "name is empty" in message

    profiles(giving("1.5.1"))
    created.all_have("1.5.1")
    profiles(BROKEN)
    created.all_have("1.5.1")
    wait_until(lambda: len(complaints(plane)) == 2, "a second event is written")
    profiles(None)
    created.all_have(None)
