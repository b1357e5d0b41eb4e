"""Claims nodes beside webhook and scorer, for the tests of a module."""

import pytest
from controlplane.claims_nodes import claims_nodes, wait_until_claims_are_made
from controlplane.dra import claims_of
from controlplane.process import wait_until


@pytest.fixture(scope="module")
def driver(plane, placing):
    """NVIDIA's driver for claims, as far as the API server sees it; it has no node yet."""
    del placing
    with claims_nodes(plane.api) as nodes:
        yield nodes


@pytest.fixture
def claims(driver, pods):
    """Adds claims nodes; at the end no pod and no claim of the test's namespace is left."""
    yield driver
    pods.clear()
    path = claims_of(pods.namespace)
    for claim in pods.api.get(path)["items"]:
        if not claim["metadata"].get("ownerReferences"):
            pods.api.delete(f"{path}/{claim['metadata']['name']}")
    wait_until(lambda: not pods.api.get(path)["items"], "its claims are gone")
    driver.remove()


@pytest.fixture
def machines(claims, pods):
    """Adds claims nodes, DGX-1 V100 by default, and waits until admission knows them."""

    def add(count, machine="dgx1-v100"):
        names = claims.add(count, machine)
        wait_until_claims_are_made(pods)
        return names

    return add
