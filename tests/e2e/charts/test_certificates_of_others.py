"""The chart with certificates of cert-manager, and with those of people, on a real API server."""

import base64
import json
import subprocess
import sys
from urllib.request import urlopen

import pytest
from controlplane.cert_manager import CERTIFICATES, renew, run_cert_manager
from controlplane.chart import CHART, RELEASE
from controlplane.installation import SECRETS, certs_process, new_folder, run_components
from controlplane.manifests import MUTATING, ROOT, VALIDATING
from controlplane.other_programs import cert_manager_binaries
from controlplane.pods import a_pod, gates
from controlplane.process import wait_until
from controlplane.required import required
from controlplane.reviews import run_reviews
from controlplane.webhook import PATIENT
from cryptography import x509
from support.certificates import a_ca, a_leaf

from certs.authority import subject_alt_names
from certs.leaf import read_leaf
from certs.pem import encode
from certs.settings import SERVERS
from certs.status import fingerprint
from linkwise.cluster import keys

PROFILE = f"--values={CHART / 'profiles/cert-manager.yaml'}"
CA = f"{SECRETS}/linkwise-ca"
LAG = 1
"""How late the client sees a change of `caBundle`, every second time [s]."""
RATE = 50
"""Reviews each second, each over a new connection."""


@pytest.fixture(scope="module")
def cert_manager():
    return required(cert_manager_binaries)


@pytest.fixture(autouse=True)
def no_secrets(plane):
    """Those of certs, cert-manager or people outlive the release of the test before."""
    plane.api.delete(SECRETS)


@pytest.fixture
def install(helm):
    """Installs the chart, or upgrades it."""

    def run(option):
        ran = helm("upgrade", RELEASE, str(CHART), "--install", "--create-namespace", option)
        assert ran.returncode == 0, ran.stderr

    return run


def leaf(plane, server=SERVERS[0]):
    _, secret, _ = server
    return read_leaf(plane.api.get(f"{SECRETS}/{secret}")["data"])


def clients(plane):
    return [
        hook["clientConfig"]
        for path in (MUTATING, VALIDATING)
        for hook in plane.api.get(path)["webhooks"]
    ]


def all_trust(plane, bundle):
    """Return whether each caBundle is this one [PEM]."""
    texts = {client.get("caBundle", "") for client in clients(plane)}
    return texts == {base64.b64encode(bundle).decode()}


def run_linkwise(plane, mode):
    certs = certs_process(plane, new_folder(plane), mode=mode)
    return run_components(plane, certs, seconds=PATIENT)


def status(plane):
    """Return what `linkwise certs status` reports, and its exit code."""
    command = (sys.executable, "-m", "linkwise.cli", "certs", "status", "-o", "json")
    asked = (*command, f"--kubeconfig={plane.kubeconfig}")
    ran = subprocess.run(asked, capture_output=True, text=True, check=False, cwd=ROOT)
    return json.loads(ran.stdout), ran.returncode


def check(plane, linkwise, path, mode, trusted):
    """Check that pods are admitted, and that certs reports and changes nothing but its status."""
    pod = plane.api.create(path, a_pod("admitted", {keys.GPU_WHOLE: 1}))
    assert gates(pod) == [keys.GANG]
    report, code = status(plane)
    assert (code, report["mode"], report["phase"], report["problems"]) == (0, mode, "", [])
    assert [one["sha256"] for one in report["authorities"]] == [fingerprint(trusted)]
    with urlopen(f"{linkwise.certs.urls[0]}/metrics", timeout=30) as answer:  # noqa: S310
        metrics = answer.read().decode()
    for registration in ("mutating", "validating"):
        name = f"{registration}webhookconfigurations"
        assert f'linkwise_certs_trusted{{registration="{name}"}} 1.0' in metrics
    assert 'linkwise_certs_expiry_timestamp_seconds{certificate="ca"}' in metrics
    # Its account may read and write what its mode needs.
    log = linkwise.certs.log.read_text()
    assert "Lost watch" not in log
    assert "Could not" not in log


def goes_on(reviews, seconds=2 * LAG):
    """Return when the client sends further reviews for so long [s]."""
    enough = reviews.results.seconds + seconds
    wait_until(lambda: reviews.results.seconds > enough, "reviews go on")


def shows(reviews, certificate):
    """Return when the webhook has shown a certificate to the client for some time."""
    serial = certificate.serial_number
    wait_until(lambda: int(reviews.results.leaves[-1], 16) == serial, "it shows the certificate")
    goes_on(reviews)


# ---- cert-manager.


@pytest.fixture
def issued(plane, install, cert_manager, tmp_path):
    """The chart, its certificates for addresses of this machine too, and cert-manager."""
    with run_cert_manager(plane, cert_manager, tmp_path):
        install(PROFILE)
        wait_until(lambda: all_trust(plane, leaf(plane).trusted), "it writes each caBundle")
        install(PROFILE)
        assert all_trust(plane, leaf(plane).trusted)
        for _, _, name in SERVERS:
            addresses = {"spec": {"ipAddresses": ["127.0.0.1"]}}
            plane.api.patch(f"{CERTIFICATES}/{name}", addresses)
        wait_until(lambda: all(is_for_this_machine(plane, one) for one in SERVERS), "they have it")
        yield


def is_for_this_machine(plane, server):
    return "127.0.0.1" in subject_alt_names(leaf(plane, server).certificate)


def renew_those_without(plane, bundle, servers):
    """Renew the certificates without these CAs, and return whether there was none.

    An issuer may see the Secret of its CA late.
    """
    stale = [one for one in servers if leaf(plane, one).trusted != bundle]
    for _, _, name in stale:
        renew(plane, name)
    return not stale


@pytest.mark.usefixtures("issued")
def test_cert_manager_renews_certificates_and_its_ca_without_a_failed_call(plane, namespace_of):
    path = namespace_of(plane.api)
    first = leaf(plane).trusted
    with run_linkwise(plane, "cert-manager") as linkwise:
        with run_reviews(plane, linkwise.replicas[0].ports[0], RATE, LAG) as reviews:
            for _, _, name in SERVERS:
                renew(plane, name)
            shows(reviews, leaf(plane).certificate)
            assert all_trust(plane, first)

            renew(plane, "linkwise-ca")
            second = base64.b64decode(plane.api.get(CA)["data"]["tls.crt"])
            assert second != first
            # The injector writes the CA of the first server, which is renewed last here.
            wait_until(lambda: renew_those_without(plane, second, SERVERS[1:]), "two have it")
            wait_until(lambda: len(status(plane)[0]["authorities"]) == 2, "certs has seen it")
            assert all_trust(plane, first)
            assert status(plane)[0]["problems"] == []
            wait_until(lambda: renew_those_without(plane, second, SERVERS), "all have it")
            shows(reviews, leaf(plane).certificate)
            # Its injector removes a CA only when that has expired.
            wait_until(lambda: all_trust(plane, first + second), "both CAs are trusted")
            wait_until(lambda: reviews.results.bundles >= 2, "the client has read it")

            for configuration in (MUTATING, VALIDATING):
                hooks = plane.api.get(configuration)["webhooks"]
                plane.api.patch(configuration, [clear(i) for i in range(len(hooks))], "json")
            wait_until(lambda: all_trust(plane, second), "what was cleared is restored")
            goes_on(reviews)
        assert reviews.results.failures == []
        assert reviews.results.bundles == 3
        wait_until(lambda: len(status(plane)[0]["authorities"]) == 1, "certs has seen it")
        check(plane, linkwise, path, "cert-manager", x509.load_pem_x509_certificate(second))
    for each in (MUTATING, VALIDATING, *(f"{SECRETS}/{secret}" for _, secret, _ in SERVERS)):
        written = plane.api.get(each)["metadata"]["managedFields"]
        assert keys.CERTS not in {entry["manager"] for entry in written}


def clear(number):
    return {"op": "remove", "path": f"/webhooks/{number}/clientConfig/caBundle"}


# ---- People.


def provide(plane, pair, *trusted):
    """Write the Secret of each server, and return the CAs that it trusts [PEM]."""
    contents = {"tls.crt": pair.cert_pem, "tls.key": pair.key_pem}
    contents["ca.crt"] = b"".join(ca.cert_pem for ca in trusted)
    for _, name, _ in SERVERS:
        head = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}}
        secret = {**head, "type": "kubernetes.io/tls", "data": encode(contents)}
        plane.api.patch(f"{SECRETS}/{name}", secret, "apply", fieldManager="people")
    return contents["ca.crt"]


def test_provided_ca_is_replaced_in_steps_without_a_failed_call(plane, install, namespace_of):
    install("--set=certs.mode=provided")
    path = namespace_of(plane.api)
    old, new = a_ca("old"), a_ca("new")
    first, second = a_leaf(old), a_leaf(new)
    provide(plane, first, old)
    with (
        run_linkwise(plane, "provided") as linkwise,
        run_reviews(plane, linkwise.replicas[0].ports[0], RATE, LAG) as reviews,
    ):
        steps = ((first, (old, new), 2), (second, (old, new), 2), (second, (new,), 3))
        for shown, trusted, seen in steps:
            bundle = provide(plane, shown, *trusted)
            wait_until(lambda bundle=bundle: all_trust(plane, bundle), "certs writes each caBundle")
            wait_until(lambda seen=seen: reviews.results.bundles >= seen, "the client has read it")
            shows(reviews, shown.certificate)
        assert reviews.results.failures == []
        wait_until(lambda: len(status(plane)[0]["authorities"]) == 1, "certs has seen it")
        check(plane, linkwise, path, "provided", new.certificate)
