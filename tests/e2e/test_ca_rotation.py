"""The CA rotates while API servers call the webhook: no call fails, whatever happens to certs."""

import base64
import json
from contextlib import ExitStack, contextmanager
from signal import SIGKILL

import pytest
from certificates import a_ca
from controlplane.background import Background
from controlplane.installation import SECRETS, certs_process, run_installation
from controlplane.killer import Killer
from controlplane.manifests import MUTATING, NAMESPACE, VALIDATING
from controlplane.process import answers, wait_until
from controlplane.reviews import run_reviews
from controlplane.soak import often
from controlplane.webhook import PATIENT

from certs.authorities import read_authorities
from certs.store import CA_SECRET
from cluster import keys

pytestmark = pytest.mark.timeout(often(500, 1800))

CA = f"{SECRETS}/{CA_SECRET}"
STATUS = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{keys.CERTS}"
LASTS = 120
"""Of a certificate; a CA lasts three times as long, and a wait a sixth [s]."""
LAG = 5
"""How late the client sees a change of `caBundle`, every second time [s]."""
RATE = often(100, 200)
"""Reviews each second, each over a new connection."""


@pytest.fixture
def plane(plane_of_its_own):
    return plane_of_its_own


def authorities(plane):
    return read_authorities(plane.api.get(CA)["data"])


def phase(plane):
    return json.loads(plane.api.get(STATUS)["data"][keys.CERTS_KEY])["phase"]


def rotate(plane):
    """Wait until another CA signs, and the old one is trusted no more."""
    old = authorities(plane).current.certificate
    if often(1, 0):
        plane.api.patch(CA, {"metadata": {"annotations": {keys.ROTATE_CA: "now"}}})
    wait_until(lambda: old not in authorities(plane).certificates, "the old CA is retired", 480)
    wait_until(lambda: phase(plane) == "stable", "the rotation has ended")


def check(reviews, rotations):
    results = reviews.results
    rate = results.answered / results.seconds
    print(f"{results.answered} reviews, {rate:.0f} a second, {len(results.leaves)} certificates")
    assert results.failures == []
    assert results.sent - results.answered < 2 * RATE
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
def test_three_rotations_fail_no_call(plane, racing):
    if not racing and often(1, 0):
        pytest.skip("the short form runs two replicas alone: make soak")
    with ExitStack() as stack:
        linkwise = stack.enter_context(run_installation(plane, leaf_seconds=LASTS, seconds=PATIENT))
        if racing:
            stack.enter_context(second_certs(plane))
        with run_reviews(plane, linkwise.replicas[0].ports[0], RATE, LAG) as reviews:
            for _ in range(3):
                rotate(plane)
        check(reviews, 3)


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
        Killer(plane.server, str(plane.ca_file), kill) as killer,
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
            run_reviews(plane, linkwise.replicas[0].ports[0], RATE / 2, LAG) as reviews,
        ):
            killer.armed = True
            rotate(plane)
            killer.armed = False
        check(reviews, 1)

    print(f"killed {len(killer.killed)} times")
    assert {f"PATCH {CA}", f"PATCH {MUTATING}", f"PATCH {VALIDATING}"} <= {*killer.killed}
    assert sum(path.startswith(f"PATCH {SECRETS}") for path in killer.killed) >= 2 * 6


@pytest.mark.parametrize("change", ["clear", "overwrite"])
def test_bundle_that_another_client_changes_is_restored_within_5_seconds(plane, change):
    with run_installation(plane, seconds=PATIENT):
        before = bundles(plane)
        place = "/webhooks/0/clientConfig/caBundle"
        foreign = base64.b64encode(a_ca().cert_pem).decode()
        value = {"op": "remove"} if change == "clear" else {"op": "replace", "value": foreign}
        for path in (MUTATING, VALIDATING):
            plane.api.patch(path, [{**value, "path": place}], "json")
        # A limit of the requirements, not of a machine: it takes a fraction of a second.
        wait_until(lambda: bundles(plane) == before, "the bundles are restored", 5)


def bundles(plane):
    hooks = [hook for path in (MUTATING, VALIDATING) for hook in plane.api.get(path)["webhooks"]]
    return [hook["clientConfig"].get("caBundle") for hook in hooks]
