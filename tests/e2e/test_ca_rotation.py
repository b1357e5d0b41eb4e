"""The CA rotates while API servers call the webhook: no call fails, whatever happens to certs."""

import base64
import json
import re
import time
from contextlib import ExitStack, contextmanager
from signal import SIGKILL

import pytest
import urllib3
from controlplane.api import refusal
from controlplane.background import Background
from controlplane.installation import (
    CERTIFICATES,
    SECRET_PATH,
    SECRETS,
    certs_process,
    run_installation,
)
from controlplane.killer import Killer
from controlplane.manifests import MUTATING, NAMESPACE, VALIDATING
from controlplane.pods import a_pod
from controlplane.process import answers, wait_until
from controlplane.reviews import run_reviews
from controlplane.soak import often
from controlplane.webhook import PATIENT
from support.certificates import a_ca

from certs.__main__ import KEY_SOURCE
from certs.authorities import Authorities, read_authorities, write_authorities
from certs.authority import new_authority, new_leaf, subject_alt_names
from certs.leaf import Leaf, read_leaf, write_leaf
from certs.pem import certificates_pem, key_pem
from certs.store import CA_SECRET
from linkwise.cluster import keys
from linkwise.runtime.process.clock import wall

pytestmark = pytest.mark.timeout(often(500, 1800))

CA = f"{SECRETS}/{CA_SECRET}"
STATUS = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{keys.CERTS}"
DAY = 86_400
LASTS = often(72, 120)
"""Of a certificate; a CA lasts three times as long, and a wait a sixth [s]."""
LAG = often(3, 5)
"""How late the client sees a change of `caBundle`, every second time [s]."""
RATE = often(100, 200)
"""Reviews each second, each over a new connection."""
ROTATIONS = often(2, 3)


@pytest.fixture
def plane(plane_of_its_own):
    return plane_of_its_own


def authorities(plane):
    return read_authorities(plane.api.get(CA)["data"])


def phase(plane):
    return json.loads(plane.api.get(STATUS)["data"][keys.CERTS_KEY])["phase"]


def rotate(plane):
    """Request a rotation, and wait until another CA signs and the old one is trusted no more."""
    old = authorities(plane).current.certificate
    plane.api.patch(CA, {"metadata": {"annotations": {keys.ROTATE_CA: "now"}}})
    wait_until(lambda: old not in authorities(plane).certificates, "the old CA is retired", 480)
    wait_until(lambda: phase(plane) == "stable", "the rotation has ended")


def check(reviews, rotations):
    results = reviews.results
    rate = results.answered / results.seconds
    print(f"{results.answered} reviews, {rate:.0f} a second, {len(results.leaves)} certificates")
    assert results.failures == []
    assert results.sent == results.answered
    assert len(results.leaves) > rotations
    # A CA is announced and retired each time; the client may end before it sees the last change.
    assert results.bundles >= 2 * rotations


@contextmanager
def second_certs(plane):
    folder = plane.site.folder / "second-certs"
    folder.mkdir()
    other = certs_process(plane, folder, leaf_seconds=LASTS)
    plane.processes.start(other)
    try:
        other.wait_ready(lambda: answers(f"{other.urls[0]}/readyz"))
        yield
    finally:
        plane.processes.stop(other)


@pytest.mark.parametrize("racing", [False, True], ids=["one certs", "two racing"])
def test_rotations_fail_no_call(plane, racing):
    if not racing and often(1, 0):
        pytest.skip("the short form runs two replicas alone: make soak")
    with ExitStack() as stack:
        linkwise = stack.enter_context(run_installation(plane, leaf_seconds=LASTS, seconds=PATIENT))
        if racing:
            stack.enter_context(second_certs(plane))
        with run_reviews(plane, linkwise.replicas[0].ports[0], RATE, LAG) as reviews:
            for _ in range(ROTATIONS):
                rotate(plane)
        check(reviews, ROTATIONS)


class Restarter(Background):
    """Starts a process again when it was killed, as a kubelet does."""

    def __init__(self, plane, process):
        super().__init__()
        self.plane, self.process = plane, process

    def _run(self):
        while not self._over.wait(0.05):
            if not self.process.runs:
                self.plane.processes.stop(self.process)
                self.plane.processes.start(self.process)


def test_rotation_with_certs_killed_at_every_write_fails_no_call(plane):
    processes = []

    def kill():
        processes[0].signal(SIGKILL)
        processes[0].child.wait()

    with (
        Killer(plane.server, str(plane.ca_file), kill, thorough=bool(often(0, 1))) as killer,
        run_installation(
            plane,
            certs_server=killer.server,
            leaf_seconds=5 * LASTS,
            wait_seconds=LASTS / 6,
            seconds=PATIENT,
        ) as linkwise,
    ):
        processes.append(linkwise.certs)
        with (
            Restarter(plane, linkwise.certs),
            run_reviews(plane, linkwise.replicas[0].ports[0], often(50, RATE), LAG) as reviews,
        ):
            killer.armed = True
            for _ in range(often(1, 3)):
                rotate(plane)
            killer.armed = False
        check(reviews, often(1, 3))

    print(f"killed {len(killer.killed)} times")
    assert {f"PATCH {CA}", f"PATCH {MUTATING}", f"PATCH {VALIDATING}"} <= {*killer.killed}
    # The CA and the Secret of each server change three times in a rotation.
    count = sum(path.startswith(f"PATCH {SECRETS}") for path in killer.killed)
    assert count >= often(1, 6) * 3 * (1 + len(CERTIFICATES))


# ---- One installation for all tests below: it must start after those above have ended.


@pytest.fixture(scope="module")
def killer(plane_of_its_own):
    """Kills nothing; the tests set its clock."""
    plane = plane_of_its_own
    with Killer(plane.server, str(plane.ca_file), lambda: None) as killer:
        yield killer


@pytest.fixture(scope="module")
def linkwise(plane_of_its_own, killer):
    with run_installation(
        plane_of_its_own,
        certs_server=killer.server,
        leaf_seconds=DAY,
        # As shipped: 10 s when the CA and certificates are lost.
        wait_seconds=600,
        seconds=PATIENT,
    ) as running:
        yield running


@pytest.mark.parametrize("change", ["clear", "overwrite"])
@pytest.mark.usefixtures("linkwise")
def test_bundle_that_another_client_changes_is_restored(plane, change):
    before = bundles(plane)
    place = "/webhooks/0/clientConfig/caBundle"
    foreign = base64.b64encode(a_ca().cert_pem).decode()
    value = {"op": "remove"} if change == "clear" else {"op": "replace", "value": foreign}
    for path in (MUTATING, VALIDATING):
        plane.api.patch(path, [{**value, "path": place}], "json")
    # It takes a fraction of a second where the machine does not stand still.
    wait_until(lambda: bundles(plane) == before, "the bundles are restored", often(30, 5))


def test_deleted_secrets_fail_no_call(plane, linkwise):
    # The lag is longer than servers take to load a new certificate.
    with run_reviews(plane, linkwise.replicas[0].ports[0], RATE, 8) as reviews:

        def wait_for_certificates(count):
            what = f"{count} certificates were served"
            wait_until(lambda: len(reviews.results.leaves) == count, what)

        wait_for_certificates(1)
        plane.api.delete(SECRET_PATH)
        wait_for_certificates(2)

        plane.api.delete(CA)
        wait_until(lambda: phase(plane) == "wait", "a new CA is announced")
        assert authorities(plane).current is None

        # The CA was lost when it was announced, too.
        for path in (CA, *CERTIFICATES.values()):
            plane.api.delete(path)
        wait_for_certificates(3)
    results = reviews.results
    print(f"{results.answered} reviews in {results.seconds:.0f} s")
    assert results.failures == []
    assert results.sent == results.answered


def test_certificates_that_have_all_expired_are_replaced(plane, linkwise):
    plane.processes.stop(linkwise.certs)
    expire_all(plane)
    # A policy refuses the pod if its review has failed.
    wait_until(lambda: "linkwise-placed" in refused(plane), "the certificate is rejected")
    plane.processes.start(linkwise.certs)
    started = time.monotonic()
    wait_until(lambda: refused(plane) == "", "calls succeed")
    print(f"calls succeed {time.monotonic() - started:.1f} s after certs was started")

    wait_until(lambda: answers(f"{linkwise.certs.urls[0]}/readyz"), "certs is ready")
    wait_until(
        lambda: any("has expired" in each["message"] for each in events(plane, "CAIssued")),
        "an Event has the reason",
    )
    assert 'linkwise_certs_transitions_total{action="CAIssued"} 1.0' in metrics(linkwise)


def test_certs_with_a_wrong_clock_issues_nothing(plane, linkwise, killer):
    old = authorities(plane).certificates
    killer.ahead = -365 * DAY
    wait_until(lambda: "ahead of" in readiness(linkwise), "certs is not ready")
    plane.api.delete(SECRET_PATH)
    plane.api.patch(CA, {"metadata": {"annotations": {keys.ROTATE_CA: "now"}}})
    before = bundles(plane)
    plane.api.patch(
        MUTATING, [{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}], "json"
    )
    wait_until(lambda: bundles(plane) == before, "the bundle is restored")

    assert "not found" in refusal(lambda: plane.api.get(SECRET_PATH))
    assert authorities(plane).certificates == old
    wait_until(lambda: bool(events(plane, "ClockSkew")), "an Event reports the clock")
    assert [each["type"] for each in events(plane, "ClockSkew")] == ["Warning"]
    (skew,) = re.findall(
        r"^linkwise_certs_clock_skew_seconds (\S+)", metrics(linkwise), re.MULTILINE
    )
    assert float(skew) == pytest.approx(365 * DAY, abs=60)

    killer.ahead = 0
    wait_until(lambda: answers(f"{linkwise.certs.urls[0]}/readyz"), "certs is ready again")
    wait_until(lambda: phase(plane) == "wait", "the rotation has begun")
    plane.api.get(SECRET_PATH)


def expire_all(plane):
    """Store certificates and bundles as if all were issued 400 days ago."""
    issued = wall() - 400 * DAY
    ca = new_authority(issued, 365 * DAY, KEY_SOURCE)
    bundle = certificates_pem([ca.certificate])
    for path in CERTIFICATES.values():
        names = subject_alt_names(read_leaf(plane.api.get(path)["data"]).certificate)
        pair = new_leaf(ca, names, issued, 30 * DAY, KEY_SOURCE)
        data = write_leaf(Leaf(pair.certificate, key_pem(pair), bundle))
        plane.api.patch(path, {"data": data})
    plane.api.patch(CA, {"data": write_authorities(Authorities(ca))})
    text = base64.b64encode(bundle).decode()
    for path in (MUTATING, VALIDATING):
        places = range(len(plane.api.get(path)["webhooks"]))
        change = {"op": "replace", "value": text}
        changes = [{**change, "path": f"/webhooks/{i}/clientConfig/caBundle"} for i in places]
        plane.api.patch(path, changes, "json")


def refused(plane):
    """Return why a pod that Linkwise places is refused; empty where it is created."""
    pod = a_pod("probe", {keys.GPU_WHOLE: 1})
    return refusal(lambda: plane.api.create("/api/v1/namespaces/default/pods", pod, dryRun="All"))


def events(plane, reason):
    path = f"/api/v1/namespaces/{NAMESPACE}/events"
    return plane.api.get(path, fieldSelector=f"reason={reason}")["items"]


def metrics(linkwise):
    return urllib3.request("GET", f"{linkwise.certs.urls[0]}/metrics").data.decode()


def readiness(linkwise):
    """Return the response of the probe of certs."""
    return urllib3.request("GET", f"{linkwise.certs.urls[0]}/readyz").data.decode()


def bundles(plane):
    hooks = [hook for path in (MUTATING, VALIDATING) for hook in plane.api.get(path)["webhooks"]]
    return [hook["clientConfig"].get("caBundle") for hook in hooks]
