"""A control plane for the folder: the programs of others leave their objects behind."""

from collections.abc import Iterator
from contextlib import suppress

import pytest
from controlplane.api import ApiError
from controlplane.binaries import Binaries
from controlplane.plane import ControlPlane, control_plane
from controlplane.pods import Pods


@pytest.fixture(scope="package")
def plane(
    programs_without_completion: Binaries,
    programs_of_others: Binaries,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ControlPlane]:
    """A control plane on which the pods of Jobs run until they are deleted."""
    del programs_of_others  # Without them no control plane is needed.
    with control_plane(tmp_path_factory.mktemp("plane"), programs_without_completion) as plane:
        yield plane


@pytest.fixture
def pods(placing: object, plane: ControlPlane, namespace: str) -> Iterator[Pods]:
    """The pods of a namespace of the test's own; the test's end deletes them."""
    del placing
    made = Pods(plane.api, namespace)
    yield made
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    made.api.delete(jobs, propagationPolicy="Background")
    for name in made.all():
        # Kueue's, which waits for a replacement.
        with suppress(ApiError):
            made.api.patch(f"{made.path}/{name}", {"metadata": {"finalizers": None}})
    made.clear()
