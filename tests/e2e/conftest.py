"""A real control plane for the end-to-end tests: built before the first, shared by all."""

from collections.abc import Callable, Iterator

import pytest
from controlplane.binaries import Binaries, BuildError, MissingError, binaries
from controlplane.nodes import NODES, Line, add_nodes, read_nodes
from controlplane.plane import ControlPlane, control_plane
from controlplane.process import wait_until
from controlplane.training import run_training_operator

from cluster.node import Node

_BINARIES = pytest.StashKey[Binaries | MissingError]()


def pytest_itemcollected(item: pytest.Item) -> None:
    # Here, so that no test of this folder can forget it.
    item.add_marker(pytest.mark.e2e)


def pytest_collection_finish(session: pytest.Session) -> None:
    # Not in a fixture: a first build takes longer than any test may.
    if any(item.get_closest_marker("e2e") for item in session.items):
        say = _speaker(session.config)
        try:
            session.config.stash[_BINARIES] = binaries(say)
        except MissingError as missing:
            say(f"end-to-end tests are skipped: {missing}")
            session.config.stash[_BINARIES] = missing
        except BuildError as error:
            raise pytest.UsageError(str(error)) from None


def _speaker(config: pytest.Config) -> Callable[[str], None]:
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    return terminal.write_line if terminal else print


@pytest.fixture(scope="session")
def plane(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """An empty control plane: no nodes, no Linkwise."""
    found = request.config.stash[_BINARIES]
    if isinstance(found, MissingError):
        pytest.skip(str(found))
    with control_plane(tmp_path_factory.mktemp("plane"), found) as plane:
        yield plane


@pytest.fixture(scope="session")
def training_operator(plane: ControlPlane) -> Iterator[None]:
    """training-operator, which makes the pods of MPIJobs."""
    with run_training_operator(plane):
        yield


@pytest.fixture
def namespace(plane: ControlPlane) -> Iterator[str]:
    """A namespace of the test's own, in which pods can be made."""
    made = plane.api.create("/api/v1/namespaces", {"metadata": {"generateName": "e2e-"}})
    name = made["metadata"]["name"]
    accounts = f"/api/v1/namespaces/{name}/serviceaccounts"
    wait_until(lambda: bool(plane.api.get(accounts)["items"]), f"{name} has a ServiceAccount")
    yield name
    plane.api.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture
def nodes(plane: ControlPlane) -> Iterator[Callable[..., tuple[Node, ...]]]:
    """Adds nodes, given as lines of a cluster file's short form; the test's end takes them away."""
    added: list[Node] = []

    def add(*lines: Line) -> tuple[Node, ...]:
        made = read_nodes(lines)
        added.extend(made)
        add_nodes(plane.api, made)
        return made

    yield add
    for node in added:
        plane.api.delete(f"{NODES}/{node.name}")
