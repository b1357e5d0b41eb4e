"""A serving certificate that is renewed while pods are created."""

import socket
from concurrent.futures import ThreadPoolExecutor

import pytest
from controlplane.installation import run_installation
from controlplane.load import Load
from controlplane.process import wait_until
from controlplane.webhook import PATIENT, trusting
from cryptography import x509

from linkwise.cluster import keys
from linkwise.runtime.process.clock import wall

LASTS = 75
"""A leaf is renewed when a third of this is left: more than what mounting and reloading take."""
GATE = {"name": keys.GANG}


@pytest.fixture(scope="module")
def linkwise(plane):
    with run_installation(plane, leaf_seconds=LASTS, seconds=PATIENT) as running:
        yield running


@pytest.fixture
def path(namespace):
    return f"/api/v1/namespaces/{namespace}/pods"


def body(number):
    """Return a pod that fails closed: without the webhook it is refused."""
    container = {"name": "main", "image": "registry.example/none"}
    container["resources"] = {"limits": {keys.GPU_WHOLE: "1"}}
    return {"metadata": {"name": f"pod-{number}"}, "spec": {"containers": [container]}}


def shown(linkwise):
    """Return the certificate that the webhook shows to those who trust what its registration does.

    A server with another certificate fails here as it does at the API server.
    """
    context = trusting(linkwise.plane)
    address = ("127.0.0.1", linkwise.replicas[0].ports[0])
    with (
        socket.create_connection(address, timeout=10) as plain,
        context.wrap_socket(plain, server_hostname=address[0]) as secure,
    ):
        return x509.load_der_x509_certificate(secure.getpeercert(binary_form=True))


def test_while_a_certificate_is_renewed_and_the_old_one_ends_no_create_fails(plane, linkwise, path):
    replica = linkwise.replicas[0].process
    first, pid, asked = shown(linkwise), replica.pid, linkwise.standby.judged
    ends = first.not_valid_after_utc.timestamp()

    with Load(plane.api, path, body, clients=2) as load:
        wait_until(lambda: shown(linkwise) != first, "another certificate is shown", 240)
        load.goes_on()
        wait_until(lambda: wall() > ends, "the first certificate has ended", 240)
        load.goes_on()

    assert load.failed == []
    assert linkwise.standby.judged == asked
    assert all(pod["spec"]["schedulingGates"] == [GATE] for pod in load.created)
    assert (replica.pid, replica.runs) == (pid, True)
    # More at once than the API server keeps connections for: it has to make new ones.
    with ThreadPoolExecutor(40) as burst:
        made = burst.map(lambda n: plane.api.create(path, body(10_000 + n)), range(80))
        assert all(pod["spec"]["schedulingGates"] == [GATE] for pod in made)
