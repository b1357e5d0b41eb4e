"""Faults between the components and the API server: pods go on being decided, state catches up.

Clients that create pods can always reach the API server. The components reach it through a relay,
which the tests interrupt.
"""

import base64
import json
from itertools import count

import pytest
from controlplane.api import ApiError, refusal
from controlplane.etcd import ask_etcd, full_etcd
from controlplane.installation import SECRET_PATH, run_installation
from controlplane.manifests import MUTATING
from controlplane.process import answers, wait_until
from controlplane.relay import Relay
from controlplane.scorer import QUICK, run_scorer, wait_for_leader
from controlplane.soak import long
from controlplane.webhook import PATIENT

from certs.leaf import read_leaf
from linkwise.cluster import keys

# Some of it waits for what takes a minute where nothing else runs.
pytestmark = pytest.mark.timeout(400)

PROFILES = f"/api/v1/namespaces/{keys.PROFILE_NAMESPACE}/configmaps"
NAMESPACES = "/api/v1/namespaces"
CATCHES_UP = 110
"""What a connection that died in silence costs at most, and a second try, on a busy machine [s]."""
LISTED = '"resource":"/api/v1/namespaces"'


@pytest.fixture(scope="module")
def plane(plane_of_its_own):
    return plane_of_its_own


@pytest.fixture(scope="module")
def way(plane):
    """The way from the components to the API server."""
    with Relay(lambda: (plane.site.ports["kube-apiserver"],)) as relay:
        yield relay


@pytest.fixture(scope="module")
def linkwise(plane, way):
    with run_installation(plane, server=way.server, seconds=PATIENT) as running:
        # So that the replica itself decides.
        running.kill(running.standby)
        yield running


@pytest.fixture
def pods(linkwise, namespace):
    """Creates pods in a namespace of the test's own."""
    return Pods(linkwise.plane.api, f"/api/v1/namespaces/{namespace}/pods")


class Pods:
    def __init__(self, api, path):
        self.api, self.path = api, path
        self._names = (f"pod-{number}" for number in count())

    def create(self, limits, **labels):
        resources = {"limits": limits}
        container = {"name": "main", "image": "registry.example/none", "resources": resources}
        metadata = {"name": next(self._names), "labels": labels}
        body = {"metadata": metadata, "spec": {"containers": [container]}}
        return self.api.create(self.path, body)

    def are_decided(self):
        """Return whether one that fails closed is made, and gated."""
        try:
            made = self.create({keys.GPU_WHOLE: "1"})
        except ApiError:
            return False
        return made["spec"]["schedulingGates"] == [{"name": keys.GANG}]

    def driver(self):
        made = self.create({}, **{keys.COMPUTE_CLASS: "gpu-hpn"})
        return made["metadata"]["labels"].get(keys.DRIVER_VERSION)


@pytest.fixture
def profiles(linkwise):
    """Writes the profile that gives pods of class gpu-hpn a driver."""
    api = linkwise.plane.api
    made = []

    def write(driver, **selectors):
        profile = {
            "name": "driver",
            "objectSelector": {"matchLabels": {keys.COMPUTE_CLASS: "gpu-hpn"}},
            "effect": {"labels": {keys.DRIVER_VERSION: driver}},
            **selectors,
        }
        body = {"data": {keys.PROFILE_KEY: json.dumps([profile])}}
        if made:
            api.patch(f"{PROFILES}/{keys.PROFILE_NAME}", body)
        else:
            made.append(api.create(PROFILES, {"metadata": {"name": keys.PROFILE_NAME}, **body}))

    yield write
    api.delete(f"{PROFILES}/{keys.PROFILE_NAME}")


def clear_bundle(plane):
    """Take the `caBundle` away, as a careless `kubectl replace` does."""
    plane.api.patch(MUTATING, [{"op": "remove", "path": BUNDLE}], "json")


BUNDLE = "/webhooks/0/clientConfig/caBundle"


def has_bundle(plane):
    return "caBundle" in plane.api.get(MUTATING)["webhooks"][0]["clientConfig"]


def logged(linkwise, words):
    return linkwise.replicas[0].process.log.read_text().count(words)


def test_after_a_restart_of_the_api_server_pods_are_decided_at_once_and_changes_are_seen(
    linkwise, pods, profiles
):
    profiles("1.5.0")
    wait_until(lambda: pods.driver() == "1.5.0", "the profile is in force")

    linkwise.plane.restart_api_server()
    wait_until(lambda: bool(linkwise.cluster.ready), "the webhook is sent connections")

    assert pods.are_decided()
    assert pods.driver() == "1.5.0"
    profiles("1.5.1")
    wait_until(lambda: pods.driver() == "1.5.1", "the change is in force")
    clear_bundle(linkwise.plane)
    wait_until(lambda: has_bundle(linkwise.plane), "certs writes what is missing")
    wait_until(pods.are_decided, "pods are decided")


def test_while_watches_are_broken_pods_are_admitted_by_the_last_known_state(
    linkwise, way, pods, profiles
):
    profiles("1.5.0")
    wait_until(lambda: pods.driver() == "1.5.0", "the profile is in force")

    way.refuses = True
    way.cut()
    profiles("1.5.1")
    assert {pods.driver() for _ in range(20)} == {"1.5.0"}
    assert pods.are_decided()
    wait_until(lambda: linkwise.replicas[0].ready, "it says so still")
    way.refuses = False

    wait_until(lambda: pods.driver() == "1.5.1", "the change is in force")
    clear_bundle(linkwise.plane)
    wait_until(lambda: has_bundle(linkwise.plane), "certs writes what is missing")
    wait_until(pods.are_decided, "pods are decided")


def test_when_the_version_of_a_watch_is_gone_everything_is_listed_again(
    linkwise, way, pods, profiles, plane
):
    profiles("1.5.0", namespaceSelector={"matchLabels": {"team": "red"}})
    wait_until(lambda: pods.driver() is None, "what was in force before is not")
    lists = logged(linkwise, LISTED)

    way.refuses = True
    way.cut()
    name = pods.path.split("/")[4]
    plane.api.patch(f"{NAMESPACES}/{name}", {"metadata": {"labels": {"team": "red"}}})
    compact(plane)
    # Its cache of events, which would still know the version, is empty after the restart.
    plane.restart_api_server()
    assert pods.driver() is None
    way.refuses = False

    wait_until(lambda: pods.driver() == "1.5.0", "the namespace's labels are known")
    assert logged(linkwise, LISTED) > lists
    assert pods.are_decided()


def compact(plane):
    """Make etcd forget everything that was before now."""
    key = base64.b64encode(b"/registry/").decode()
    revision = ask_etcd(plane, "kv/range", {"key": key})["header"]["revision"]
    ask_etcd(plane, "kv/compaction", {"revision": revision, "physical": True})


def test_after_etcd_was_full_all_components_continue_by_themselves(linkwise, pods, plane, tmp_path):
    full = "etcdserver: mvcc: database space exceeded"
    with run_scorer(plane, tmp_path, **QUICK) as scorer:
        with full_etcd(plane):
            wait_until(lambda: full in refusal(lambda: pods.create({})), "nothing can be stored")
            wait_until(lambda: not scorer.leads, "no scorer leads")
            wait_until(lambda: linkwise.replicas[0].ready, "the webhook says so still")

        wait_until(pods.are_decided, "pods are decided")
        wait_for_leader(scorer)
    clear_bundle(plane)
    wait_until(lambda: has_bundle(plane), "certs writes what is missing")


def test_a_replica_that_starts_while_the_api_server_is_away_is_ready_when_it_is_back(
    linkwise, way, pods, plane
):
    (one,) = linkwise.replicas
    way.refuses = True
    way.cut()
    linkwise.kill(one)

    plane.processes.start(one.process)
    one.process.wait_ready(lambda: answers(f"{one.probes}/healthz"))
    assert not one.ready
    way.refuses = False

    one.process.wait_ready(lambda: one.ready)
    linkwise.cluster.probe()
    wait_until(pods.are_decided, "pods are decided")


@long
def test_connections_that_fall_silent_are_noticed_and_pods_are_decided_meanwhile(
    linkwise, way, pods, profiles, plane
):
    profiles("1.5.0")
    wait_until(lambda: pods.driver() == "1.5.0", "the profile is in force")
    # Four watches of the webhook and six of certs.
    wait_until(lambda: way.connections >= 10, "all watch again")

    way.silence()
    profiles("1.5.1")

    assert pods.are_decided()
    assert {pods.driver() for _ in range(20)} == {"1.5.0"}
    wait_until(lambda: linkwise.replicas[0].ready, "it says so still")
    wait_until(lambda: pods.driver() == "1.5.1", "the change is in force", CATCHES_UP)
    clear_bundle(plane)
    wait_until(lambda: has_bundle(plane), "certs writes what is missing", CATCHES_UP)
    trusted = read_leaf(plane.api.get(SECRET_PATH)["data"]).trusted
    hook = plane.api.get(MUTATING)["webhooks"][0]
    assert base64.b64decode(hook["clientConfig"]["caBundle"]) == trusted
    wait_until(pods.are_decided, "pods are decided")
