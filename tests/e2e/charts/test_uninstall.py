"""`helm uninstall` on a real API server: no creation of a pod fails, and no pod stays gated."""

import base64
from dataclasses import dataclass, field

import pytest
from controlplane.api import ApiError
from controlplane.background import Background
from controlplane.chart import CHART, RELEASE
from controlplane.claims_nodes import RULES, claims_nodes
from controlplane.dra import claiming, claims_of, make_claim
from controlplane.manifests import MUTATING, NAMESPACE
from controlplane.nodes import NODES
from controlplane.pods import Pods, a_pod, gates
from controlplane.process import wait_until
from controlplane.uninstall_hook import HookKubelet
from controlplane.webhook import register, start_replica
from msgspec import to_builtins
from support.certificates import a_ca, a_leaf

from linkwise.cluster import keys
from linkwise.cluster.gang import Link
from linkwise.cluster.nodes.device_fence import FenceRule
from linkwise.cluster.nodes.taint_rules import Selector
from linkwise.planning.gang.crd import gangs_of

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
KINDS = (
    "mutatingwebhookconfigurations",
    "validatingwebhookconfigurations",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
)
PATIENCE = 120
OTHER = {"name": "example.com/other"}
COMPONENTS = {f"linkwise-{name}" for name in ("agent", "certs", "scorer", "webhook")}
COMPONENTS |= {"linkwise-device-fence", "linkwise-view", "linkwise-user"}
ALL_KINDS_OF_PODS = (
    {},
    {keys.GPU_WHOLE: "1"},
    {keys.GPU_MEM: "2"},
    {keys.NVIDIA_GPU: "1"},
    {keys.NVIDIA_GPU_SHARED: "1"},
)


@pytest.fixture
def installed(plane, helm, tmp_path):
    """The chart, and one replica of the webhook; only its address differs from a cluster's."""
    ran = helm("install", RELEASE, str(CHART), "--create-namespace")
    assert ran.returncode == 0, ran.stderr
    ca = a_ca()
    a_leaf(ca).write(tmp_path)
    (tmp_path / "ca.crt").write_bytes(ca.cert_pem)
    replica = start_replica(plane, tmp_path, "log", LINKWISE_DRAIN_SECONDS="0")
    try:
        register(plane, replica.ports[0], base64.b64encode(ca.cert_pem).decode(), seconds=30)
        yield plane
    finally:
        plane.processes.stop(replica.process)


@dataclass(slots=True)
class Creating(Background):
    """Creates pods of all kinds, one after the other."""

    api: object
    path: str
    created: int = 0
    failures: list[str] = field(default_factory=list)

    def _run(self):
        while not self._over.wait(0.02):
            limits = ALL_KINDS_OF_PODS[self.created % len(ALL_KINDS_OF_PODS)]
            self.created += 1
            try:
                self.api.create(self.path, a_pod(f"during-{self.created}", limits))
            except ApiError as error:
                self.failures.append(f"{limits}: {error}")


def all_gates(api, path):
    return {one["metadata"]["name"]: gates(one) for one in api.get(path)["items"]}


def accounts_and_roles(api):
    paths = (
        f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    )
    found = {one["metadata"]["name"] for path in paths for one in api.get(path)["items"]}
    return {name for name in found if name.startswith("linkwise")}


def left(api):
    chosen = {"labelSelector": "app.kubernetes.io/name=linkwise"}
    return {
        item["metadata"]["name"]
        for kind in KINDS
        for item in api.get(f"{ADMISSION}/{kind}", **chosen)["items"]
    }


def test_uninstall_releases_gated_pods_while_no_creation_fails(installed, helm, namespace_of):
    api = installed.api
    path = namespace_of(api)
    api.create(path, a_pod("ours", {keys.GPU_WHOLE: "1"}))
    api.create(path, a_pod("both", {keys.GPU_WHOLE: "1"}, schedulingGates=[OTHER]))
    api.create(path, a_pod("other", schedulingGates=[OTHER]))
    for number in range(120):
        api.create(path, a_pod(f"held-{number}", {keys.GPU_WHOLE: "1"}))
    assert accounts_and_roles(api) == COMPONENTS
    before = all_gates(api, path)
    assert before["ours"] == [keys.GANG]
    assert set(before["both"]) == {keys.GANG, OTHER["name"]}

    with HookKubelet(installed) as kubelet, Creating(api, path) as creating:
        ran = helm("uninstall", RELEASE)
        gone = creating.created
        wait_until(lambda: creating.created > gone + 50, "more pods are created")

    # Helm writes a warning to stderr when a watch of it ends early.
    assert ran.returncode == 0, (ran.stderr, kubelet.logs)
    assert creating.failures == []
    after = all_gates(api, path)
    assert {name: held for name, held in after.items() if held} == {
        "both": [OTHER["name"]],
        "other": [OTHER["name"]],
    }
    assert left(api) == {"linkwise-fence"}
    assert len(kubelet.logs) == 1
    deployments = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
    assert api.get(deployments)["items"] == []
    assert accounts_and_roles(api) == set()


def test_uninstall_opens_fenced_nodes_and_changes_no_pod_with_a_claim(
    installed, helm, namespace_of
):
    api = installed.api
    pods = Pods(api, namespace_of(api).split("/")[-2])
    with claims_nodes(api) as nodes:
        (node,) = nodes.add(1)
        make_claim(api, pods.namespace, "before", 2)
        pods.create(name="before", spec=claiming("before"))
        wait_until(lambda: phase(pods, "before") == "Running", "a claim is allocated", PATIENCE)
        fence = FenceRule(Selector(keys.DRA_GPU_DRIVER, node))
        version = RULES.removeprefix("/apis/").rpartition("/")[0]
        rule = to_builtins(fence.body(version))
        api.create(RULES, rule)
        other = to_builtins(fence.body(version))
        other["metadata"] = {"name": "of-others"}
        other["spec"]["taint"] = {"key": "example.com/other", "effect": "None"}
        api.create(RULES, other)
        make_claim(api, pods.namespace, "after", 1)
        pods.create(name="after", spec=claiming("after"))
        wait_until(lambda: is_refused(pods, "after"), "the fence keeps a claim out", PATIENCE)
        pod, claim = pods.all()["before"], api.get(f"{claims_of(pods.namespace)}/before")

        # Else kwok would let the pod of the hook succeed there without running it.
        api.patch(f"{NODES}/{node}", {"spec": {"unschedulable": True}})

        with HookKubelet(installed) as kubelet:
            ran = helm("uninstall", RELEASE)

        assert (ran.returncode, len(kubelet.logs)) == (0, 1), (ran.stderr, kubelet.logs)
        assert [rule["metadata"]["name"] for rule in api.get(RULES)["items"]] == ["of-others"]
        api.patch(f"{NODES}/{node}", {"spec": {"unschedulable": None}})
        wait_until(lambda: "after" in pods.bound(), "the fence is gone", PATIENCE)
        assert pods.all()["before"] == pod
        assert api.get(f"{claims_of(pods.namespace)}/before") == claim
        api.delete(f"{RULES}/of-others")
        pods.clear()


def phase(pods, name):
    return pods.all()[name]["status"].get("phase")


def is_refused(pods, name):
    conditions = pods.all()[name]["status"].get("conditions", ())
    return any("cannot allocate all claims" in one.get("message", "") for one in conditions)


def test_nothing_is_deleted_if_pods_cannot_be_released_and_the_emergency_stop_is_the_way_out(
    installed, helm, namespace_of, stop
):
    api = installed.api
    path = namespace_of(api)
    api.create(path, a_pod("ours", {keys.GPU_WHOLE: "1"}))

    # Nothing runs the Job, as if its image could not be pulled.
    failed = helm("uninstall", RELEASE, "--timeout=3s")

    assert failed.returncode != 0
    assert api.get(MUTATING)
    assert len(api.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments")["items"]) == 4
    assert all_gates(api, path) == {"ours": [keys.GANG]}

    stopped = stop()
    removed = helm("uninstall", RELEASE, "--no-hooks")

    assert (stopped.returncode, removed.returncode) == (0, 0), stopped.stderr + removed.stderr
    assert all_gates(api, path) == {"ours": []}
    assert left(api) == {"linkwise-fence"}


def test_helm_test_says_whether_admission_works_and_leaves_no_rights(installed, helm):
    api = installed.api
    with HookKubelet(installed, "test") as kubelet:
        works = helm("test", RELEASE)
        api.delete(MUTATING)
        fails = helm("test", RELEASE)

    assert works.returncode == 0, (works.stderr, kubelet.logs)
    assert fails.returncode != 0
    first, second = kubelet.logs
    assert "a pod was refused and a gang of two was changed" in first
    assert second.count("the webhook was not called") >= 2
    for kind in ("roles", "rolebindings"):
        found = api.get(f"/apis/rbac.authorization.k8s.io/v1/namespaces/default/{kind}")["items"]
        assert not [one for one in found if "linkwise" in one["metadata"]["name"]]


def test_definition_and_gangs_stay_if_the_values_say_so(plane, helm, namespace_of):
    api = plane.api
    ran = helm("install", RELEASE, str(CHART), "--create-namespace", "--set=crds.keep=true")
    assert ran.returncode == 0, ran.stderr
    gangs = gangs_of(namespace_of(api).split("/")[-2])
    spec = {"gang": "kept", "link": Link.BEST}
    kept = {"apiVersion": keys.API_VERSION, "kind": "Gang", "spec": spec}
    api.create(gangs, {**kept, "metadata": {"name": "kept"}})

    removed = helm("uninstall", RELEASE, "--no-hooks", "--wait")
    again = helm("install", RELEASE, str(CHART))

    assert (removed.returncode, again.returncode) == (0, 0), removed.stderr + again.stderr
    assert [gang["metadata"]["name"] for gang in api.get(gangs)["items"]] == ["kept"]


def test_upgrade_to_the_same_version_puts_back_what_the_emergency_stop_deleted(
    installed, helm, stop
):
    before = left(installed.api)
    stopped = stop()
    between = left(installed.api)

    ran = helm("upgrade", RELEASE, str(CHART))

    assert (stopped.returncode, ran.returncode) == (0, 0), stopped.stderr + ran.stderr
    assert between == {"linkwise-fence"}
    assert left(installed.api) == before
