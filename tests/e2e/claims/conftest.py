"""Claims nodes beside webhook and scorer, for the tests of a module."""

import pytest
from controlplane.claims_nodes import claims_nodes, wait_until_claims_are_made
from controlplane.credentials import KUBELET_CLIENT
from controlplane.manifests import ROOT
from controlplane.process import wait_until
from controlplane.webhook import run_webhook

RIGHTS = str(ROOT / "manifests/claim-templates")
CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"


@pytest.fixture(scope="module")
def webhook(plane):
    """What is shipped, and a webhook that answers API servers alone: it reads claims for them."""
    clients = str(plane.site.folder / KUBELET_CLIENT)
    with run_webhook(plane, LINKWISE_CLIENT_CA=clients) as running:
        yield running


@pytest.fixture(scope="module")
def driver(plane, placing):
    """NVIDIA's driver for claims, as far as the API server sees it; it has no node yet."""
    del placing
    with claims_nodes(plane.api) as nodes:
        yield nodes


@pytest.fixture(scope="module")
def rights(plane, placing):
    """What Linkwise may read and write for templates of users."""
    del placing
    applied = plane.kubectl("apply", "-k", RIGHTS)
    assert applied.returncode == 0, applied.stderr
    yield
    plane.kubectl("delete", "-k", RIGHTS)


@pytest.fixture
def claims(driver, plane):
    """Adds claims nodes; at the end they are removed, as soon as no claim is left."""
    yield driver
    try:
        wait_until(lambda: not plane.api.get(CLAIMS)["items"], "all claims are gone", 180)
    finally:
        driver.remove()


@pytest.fixture
def namespace(claims, namespace):
    """A namespace of the test's own; it is deleted before the nodes are removed.

    Deleted pods alone would be created again by their operators, and their claims with them.
    """
    del claims
    return namespace


@pytest.fixture
def machines(claims, pods):
    """Adds claims nodes, DGX-1 V100 by default, and waits until admission knows them."""

    def add(count, machine="dgx1-v100"):
        names = claims.add(count, machine)
        wait_until_claims_are_made(pods)
        return names

    return add
