"""A real control plane for the end-to-end tests: built before the first, shared by all."""

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import yaml
from controlplane.api import Api, refusal
from controlplane.binaries import (
    STAGES,
    Binaries,
    BuildError,
    MissingError,
    binaries,
    node_binaries,
)
from controlplane.claims_nodes import FENCED
from controlplane.history import History
from controlplane.manifests import BASE, NAMESPACE, install, uninstall
from controlplane.node.deployed import a_service_range, api_server_flags
from controlplane.node.machine import unavailable
from controlplane.nodes import Line, add_nodes, read_nodes, remove_nodes
from controlplane.other_programs import autoscaler_binaries, other_binaries
from controlplane.plane import ControlPlane, control_plane
from controlplane.pods import Pods, a_pod
from controlplane.process import wait_until
from controlplane.refusals import Refusals
from controlplane.scorer import Scorer, run_scorer
from controlplane.temporary import temporary_namespace
from controlplane.training import run_training_operator
from controlplane.webhook import Webhook, register_unreachable, run_webhook

from linkwise.cluster import keys
from linkwise.cluster.nodes.node import Node
from linkwise.policy.document import Policy
from tools.release.image import Image
from tools.release.image import build as build_image
from tools.release.image import unavailable as image_unavailable

PROFILES_ALL = BASE.parent / "profiles-all"
_BINARIES = pytest.StashKey[Binaries | MissingError]()
_NODE_BINARIES = pytest.StashKey[Binaries | MissingError]()
_AUTOSCALER_BINARIES = pytest.StashKey[Binaries | MissingError]()
_BINARIES_OF_OTHERS = pytest.StashKey[Binaries | MissingError]()


_LEAVES_REAL_NODES = ["--manage-all-nodes=false", "--manage-nodes-with-label-selector=type=kwok"]

_FIRST = (
    # Modules with control planes of their own, the longest first.
    "test_gang_chaos",
    "node/",
    "beside_others/",
    "test_up",
    "test_image",
    "test_faults",
    "test_printed",
    "test_arena",
    "claims/test_unfenced",
    "charts/",
    # Without Linkwise, with the overlay of a scheduler, without Linkwise again and then with the
    # base: each change of manifests takes several seconds.
    "test_control_plane",
    "beside/",
    "test_sidecar_killed",
    "test_gangs.py",
    # Long modules, so that no process is left with one of them at the end.
    "test_tenant.py",
    "test_rolling",
    "test_double_booking",
    "test_certificates",
    "test_changes",
)
"""The order of modules; the others follow in the order of their names."""


def pytest_itemcollected(item: pytest.Item) -> None:
    # Here, so that no test of this folder can forget it.
    item.add_marker(pytest.mark.e2e)
    # What is installed for the first test of a file, and removed after the last, counts.
    item.add_marker(pytest.mark.timeout(900))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    found = (place for place, name in enumerate(_FIRST) if f"e2e/{name}" in item.nodeid)
    return next(found, len(_FIRST))


def pytest_collection_finish(session: pytest.Session) -> None:
    if session.config.option.collectonly:
        return
    # Not in a fixture: a first build takes longer than any test may.
    if any(item.get_closest_marker("e2e") for item in session.items):
        found = _build(session.config, binaries, "end-to-end tests")
        session.config.stash[_BINARIES] = found
    if any("e2e/node/" in item.nodeid for item in session.items):
        found = _build(session.config, _node_binaries, "tests of real nodes")
        session.config.stash[_NODE_BINARIES] = found
    if any("test_autoscalers" in item.nodeid for item in session.items):
        found = _build(session.config, autoscaler_binaries, "tests of autoscalers")
        session.config.stash[_AUTOSCALER_BINARIES] = found
    if any("e2e/beside_others/" in item.nodeid for item in session.items):
        found = _build(session.config, other_binaries, "tests beside programs of others")
        session.config.stash[_BINARIES_OF_OTHERS] = found


def _build(
    config: pytest.Config, build: Callable[[Callable[[str], None]], Binaries], tests: str
) -> Binaries | MissingError:
    say = _speaker(config)
    try:
        return build(say)
    except MissingError as missing:
        say(f"{tests} are skipped: {missing}")
        return missing
    except BuildError as error:
        raise pytest.UsageError(str(error)) from None


def _node_binaries(say: Callable[[str], None]) -> Binaries:
    if reason := unavailable():
        raise MissingError(reason)
    return node_binaries(say)


def _speaker(config: pytest.Config) -> Callable[[str], None]:
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    return terminal.write_line if terminal else print


@pytest.fixture(scope="session", autouse=True)
def kubectl_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep what kubectl knows of an API server from the next one at the same address."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECACHEDIR", str(tmp_path_factory.mktemp("kubectl")))
        yield


@pytest.fixture(scope="session")
def programs(request: pytest.FixtureRequest) -> Binaries:
    """The programs of a control plane."""
    return _ready(request, _BINARIES)


@pytest.fixture(scope="session")
def programs_without_completion(
    programs: Binaries, tmp_path_factory: pytest.TempPathFactory
) -> Binaries:
    """The same, with a kwok that lets the pods of any kind `Job` run until they are deleted."""
    stages = tmp_path_factory.mktemp("stages")
    for path in programs.files(STAGES):
        shutil.copy(path, stages)
    (stages / "pod-complete.yaml").unlink()
    return Binaries({**programs.paths, STAGES: stages})


@pytest.fixture(scope="session")
def programs_of_others(request: pytest.FixtureRequest) -> Binaries:
    """Queues and schedulers of others."""
    return _ready(request, _BINARIES_OF_OTHERS)


def _ready(
    request: pytest.FixtureRequest, key: pytest.StashKey[Binaries | MissingError]
) -> Binaries:
    found = request.config.stash[key]
    if isinstance(found, MissingError):
        pytest.skip(str(found))
    return found


@pytest.fixture(scope="session")
def plane(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """An empty control plane: no nodes, no Linkwise."""
    with _new_plane(request, tmp_path_factory, **FENCED) as plane:
        yield plane


@pytest.fixture(scope="module")
def plane_of_its_own(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """A second control plane, for a module that may leave it broken."""
    with _new_plane(request, tmp_path_factory, **FENCED) as plane:
        yield plane


@pytest.fixture(scope="module")
def plane_with_history(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """Another, whose watches can be taken up where they broke, however long ago: from etcd."""
    uncached = {"kube_apiserver": ["--watch-cache=false"]}
    with _new_plane(request, tmp_path_factory, **uncached) as plane:
        yield plane


@pytest.fixture(scope="session")
def programs_of_node(request: pytest.FixtureRequest) -> Binaries:
    """The kubelet and the programs of containerd."""
    return _ready(request, _NODE_BINARIES)


@pytest.fixture(scope="session")
def autoscalers(request: pytest.FixtureRequest) -> Binaries:
    """Karpenter, and the definitions of the autoscalers' APIs."""
    return _ready(request, _AUTOSCALER_BINARIES)


@pytest.fixture(scope="session")
def plane_of_real_nodes(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    programs_of_node: Binaries,
) -> Iterator[ControlPlane]:
    """Another, whose kwok leaves nodes alone that have a kubelet."""
    del programs_of_node  # Without them no control plane is needed.
    with _new_plane(request, tmp_path_factory, kwok=_LEAVES_REAL_NODES, **FENCED) as plane:
        yield plane


@pytest.fixture(scope="module")
def plane_with_services(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    programs_of_node: Binaries,
) -> Iterator[ControlPlane]:
    """Another, whose API server calls webhooks at the endpoints of their Services."""
    del programs_of_node
    flags = {"kwok": _LEAVES_REAL_NODES, "kube_apiserver": api_server_flags(a_service_range())}
    with _new_plane(request, tmp_path_factory, **flags) as plane:
        yield plane


@contextmanager
def _new_plane(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    **flags: Sequence[str],
) -> Iterator[ControlPlane]:
    programs = _ready(request, _BINARIES)
    with control_plane(tmp_path_factory.mktemp("plane"), programs, **flags) as plane:
        yield plane


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    """The image, built once for all processes of pytest."""
    if reason := image_unavailable():
        pytest.skip(reason)
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    with (folder / "image.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        built = folder / "image.json"
        if not built.exists():
            found = build_image(folder / "image")
            built.write_text(json.dumps([str(found.archive), str(found.bill), found.digest]))
        archive, bill, digest = json.loads(built.read_text())
    return Image(Path(archive), Path(bill), digest)


@pytest.fixture
def bare(plane: ControlPlane) -> None:
    """No part of Linkwise is installed."""
    uninstall(plane)


@pytest.fixture(scope="session")
def training_operator(plane: ControlPlane) -> Iterator[None]:
    """training-operator, which makes the pods of MPIJobs."""
    with run_training_operator(plane):
        yield


@pytest.fixture
def namespace(plane: ControlPlane) -> Iterator[str]:
    """A namespace of the test's own, in which pods can be made."""
    with temporary_namespace(plane.api, "e2e-") as name:
        yield name


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
    remove_nodes(plane.api, added)


@pytest.fixture(scope="module")
def webhook(plane: ControlPlane) -> Iterator[Webhook]:
    """What is shipped, and one replica of the webhook."""
    with run_webhook(plane) as running:
        yield running


@pytest.fixture(scope="module")
def refusals(webhook: Webhook) -> Iterator[Refusals]:
    """A proxy of the API server, which refuses what a test says."""
    plane = webhook.plane
    with Refusals(plane.server, str(plane.ca_file)) as proxy:
        yield proxy


@pytest.fixture
def pods(webhook: Webhook, namespace: str) -> Pods:
    """The pods of a namespace of the test's own, where the webhook sees them."""
    return Pods(webhook.plane.api, namespace)


@pytest.fixture
def profiles(plane: ControlPlane) -> Iterator[Callable[[str | None], None]]:
    """Writes the profiles; None, or the test's end, takes them away."""
    yield from _written(plane, keys.PROFILE_NAMESPACE, keys.PROFILE_NAME, keys.PROFILE_KEY)


@pytest.fixture
def policy(webhook: Webhook) -> Iterator[Callable[[str | None], None]]:
    """Writes the policy; None takes it away, the test's end gives it back as it is shipped."""
    map_of = (keys.POLICY_NAMESPACE, keys.POLICY_NAME, keys.POLICY_KEY)
    yield from _written(webhook.plane, *map_of, at_end="")


def _written(
    plane: ControlPlane, namespace: str, name: str, key: str, at_end: str | None = None
) -> Iterator[Callable[[str | None], None]]:
    path = f"/api/v1/namespaces/{namespace}/configmaps"

    def write(text: str | None) -> None:
        there = plane.api.get(path, fieldSelector=f"metadata.name={name}")["items"]
        if text is not None and there:
            plane.api.patch(f"{path}/{name}", {"data": {key: text}})
        elif text is not None:
            plane.api.create(path, {"metadata": {"name": name}, "data": {key: text}})
        elif there:
            plane.api.delete(f"{path}/{name}")

    yield write
    write(at_end)


@pytest.fixture(scope="module")
def shipped(plane: ControlPlane) -> tuple[CompletedProcess[str], ...]:
    """The manifests of the base; no server listens at the addresses of their webhooks.

    Returns the results of `kubectl diff` and of a dry run of the overlay for all pods.
    """
    install(plane)
    difference = plane.kubectl("diff", "-k", str(BASE))
    overlay = plane.kubectl("apply", "--dry-run=server", "-k", str(PROFILES_ALL))
    register_unreachable(plane)
    wait_until(lambda: _policies_hold(plane.api), "the policies are in force")
    return difference, overlay


def _policies_hold(api: Api) -> bool:
    """Return whether both do: each refuses something that it alone minds."""
    pods = "/api/v1/namespaces/default/pods"
    asks = a_pod("probe", {keys.GPU_WHOLE: 1})
    allocated = a_pod("probe", annotations={keys.ALLOCATION: "{}"})
    message = [
        refusal(lambda one=one: api.create(pods, one, dryRun="All")) for one in (asks, allocated)
    ]
    return "linkwise-placed" in message[0] and "linkwise-guard" in message[1]


@pytest.fixture(scope="module")
def scorer(plane: ControlPlane, shipped: object) -> Iterator[Api]:
    """The API server as the scorer's account sees it."""
    del shipped  # Its namespace is what is needed.
    rbac, account = "/apis/rbac.authorization.k8s.io/v1", "linkwise-scorer"
    # What only the extender will need: to bind.
    name = "linkwise-scorer-binds"
    rule = {"apiGroups": [""], "resources": ["pods/binding"], "verbs": ["create"]}
    plane.api.create(f"{rbac}/clusterroles", {"metadata": {"name": name}, "rules": [rule]})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    subject = {"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}
    binding = {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]}
    plane.api.create(f"{rbac}/clusterrolebindings", binding)
    api = plane.api_as(plane.token(NAMESPACE, account))
    wait_until(lambda: refusal(lambda: api.get("/api/v1/pods")) == "", "it may do what it must")
    yield api
    for kind in ("clusterroles", "clusterrolebindings"):
        plane.api.delete(f"{rbac}/{kind}/{name}")


@pytest.fixture(scope="module")
def placing(webhook: Webhook, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scorer]:
    """What is shipped, one replica of the webhook, and one of the scorer."""
    with run_scorer(webhook.plane, tmp_path_factory.mktemp("scorer")) as running:
        yield running


@pytest.fixture
def placing_on_described_nodes(
    policy: Callable[[str | None], None], webhook: Webhook, tmp_path: Path
) -> Iterator[Scorer]:
    """A scorer that starts with the nodes' machines in its policy, since no agent runs."""
    machines = [{"nodeLabels": {keys.NODE_MODE: "topology"}, "machine": "dgx1-v100"}]
    body = {"apiVersion": keys.API_VERSION, "kind": Policy.__name__, "machines": machines}
    policy(yaml.safe_dump(body))
    with run_scorer(webhook.plane, tmp_path) as running:
        yield running


@pytest.fixture
def history(pods: Pods) -> Iterator[History]:
    """All changes of pods; at the end, no GPU was held twice, nor a pod where it was not placed."""
    with History(pods.api) as history:
        yield history
        history.catch_up()
    assert (history.held_twice(), history.misplaced()) == ([], [])


@pytest.fixture
def machines(nodes: Callable[..., tuple[Node, ...]]) -> Callable[[int], tuple[Node, ...]]:
    """Adds DGX-1 V100 nodes: `gpu-0` and so on."""

    def add(count: int) -> tuple[Node, ...]:
        line = {"name": "gpu", "count": count, "machine": "dgx1-v100", "mode": "topology"}
        return nodes({**line, "cpu": 96, "memory": "768Gi"})

    return add
