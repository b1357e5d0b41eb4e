"""A tenant with the role `edit` asks for what is expensive to plan, or reserves nodes for itself.

The leader keeps its Lease, and an honest gang of another tenant is placed in 5 s meanwhile.
"""

import time

import pytest
from controlplane import soak
from controlplane.gangs import make_gang, wait_for_phase, where
from controlplane.pods import Pods, container
from controlplane.process import wait_until
from controlplane.scorer import LEASE, run_scorer

from linkwise.cluster import keys

pytestmark = pytest.mark.timeout(400)

SOON = 5.0
"""From the creation of its last pod until an honest gang is bound [s]."""
LATEST = soak.often(0, -1)
"""Of several gangs: one has to be bound that soon, or all in a soak, since the machine may stand
still."""
RBAC = "/apis/rbac.authorization.k8s.io/v1"
AGED_AT_ONCE = "apiVersion: linkwise.dev/v1alpha1\nkind: Policy\ngangs: {ageingMinutes: 0}\n"
KEPT = "reserved for the unit that waited longest"


@pytest.fixture(scope="module", autouse=True)
def leader(webhook, tmp_path_factory):
    folder = tmp_path_factory.mktemp("scorer")
    with run_scorer(webhook.plane, folder) as running:
        yield running


@pytest.fixture
def tenant(webhook):
    """The pods of another namespace, as a ServiceAccount of role `edit` there makes them."""
    api = webhook.plane.api
    name = api.create("/api/v1/namespaces", {"metadata": {"generateName": "secret-tenant-"}})[
        "metadata"
    ]["name"]
    api.create(f"/api/v1/namespaces/{name}/serviceaccounts", {"metadata": {"name": "tenant"}})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
    subject = {"kind": "ServiceAccount", "name": "tenant", "namespace": name}
    binding = {"metadata": {"name": "tenant"}, "roleRef": role, "subjects": [subject]}
    api.create(f"{RBAC}/namespaces/{name}/rolebindings", binding)
    pods = Pods(webhook.plane.api_as(webhook.plane.token(name, "tenant")), name)
    accounts = f"/api/v1/namespaces/{name}/serviceaccounts"
    wait_until(lambda: len(api.get(accounts)["items"]) == 2, f"{name} has its ServiceAccounts")
    wait_until(lambda: not pods.refusal({}, name="probe", dryRun="All"), "it may create pods")
    yield pods
    api.delete(f"{pods.path}", gracePeriodSeconds="0")
    api.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture
def term(webhook):
    """Return the leader's term: each loss of the Lease changes it."""
    return lambda: webhook.plane.api.get(LEASE)["spec"].get("leaseTransitions", 0)


def seconds_until_placed(pods, gang, each=1):
    make_gang(pods, gang, 2, each)
    begin = time.monotonic()
    wait_until(lambda: len(where(pods, gang)) == 2, f"{gang} is bound", 60)
    return time.monotonic() - begin


def with_ports(ports):
    one = {**container({keys.GPU_WHOLE: 1}), "ports": ports}
    return {"containers": [one]}


PORTS = {
    "6,000 host ports": [
        {"containerPort": 80, "hostPort": 1000 + i, "name": f"p{i}"} for i in range(6000)
    ],
    "as many as may be": [
        {"containerPort": 80, "hostPort": 1000 + i, "name": f"p{i}"} for i in range(256)
    ],
    "256 on addresses of their own": [
        {"containerPort": 80, "hostPort": 7, "hostIP": f"127.0.0.{i}", "name": f"p{i}"}
        for i in range(1, 255)
    ],
}


@pytest.mark.parametrize("ports", PORTS.values(), ids=PORTS)
def test_host_ports_do_not_delay_other_gangs(ports, machines, pods, tenant, term):
    machines(4)
    before = term()
    make_gang(tenant, "ports", 2, 1, spec=with_ports(ports))

    took = [seconds_until_placed(pods, f"honest-{i}") for i in range(3)]

    assert sorted(took)[LATEST] < SOON
    assert term() == before


def test_a_pod_with_too_many_host_ports_gets_the_reason(machines, pods, tenant):
    del pods
    machines(1)
    make_gang(tenant, "ports", 2, 1, spec=with_ports(PORTS["6,000 host ports"]))

    wait_for_phase(tenant, "ports", "Assembling", "asks for more than 256 host ports")


def test_members_that_all_differ_do_not_delay_other_gangs(machines, pods, tenant, term):
    machines(4)
    before = term()
    for i in range(64):
        selector = {f"example.com/{'x' * 40}-{i}": "none"}
        tolerations = [{"key": f"key-{k}", "operator": "Exists"} for k in range(500)]
        spec = {"nodeSelector": selector, "tolerations": tolerations}
        make_gang(
            tenant,
            "unlike",
            64,
            1 + i % 8,
            [i],
            spec={
                "containers": [container({keys.GPU_WHOLE: 1 + i % 8, "cpu": f"{100 + i}m"})],
                **spec,
            },
        )

    took = [seconds_until_placed(pods, f"honest-{i}") for i in range(3)]

    assert sorted(took)[LATEST] < SOON
    assert term() == before


@pytest.fixture
def reserved(policy, machines, pods, tenant):
    """A node reserved for a tenant's gang that needs all of it, and another one."""
    first, second = machines(2)
    policy(AGED_AT_ONCE)
    pods.create(name="busy", spec=on(first))
    wait_until(lambda: node_of(pods, "busy") == first.name, "it is bound", 60)
    make_gang(tenant, "large", 1, 8, spec=on(first, gpus=8))
    wait_for_phase(tenant, "large", "Waiting", "needs 8 GPUs")
    return first, second


def on(node, gpus=1):
    selector = {keys.HOSTNAME: node.name}
    return {"containers": [container({keys.GPU_WHOLE: gpus})], "nodeSelector": selector}


def node_of(pods, name):
    return pods.all()[name]["spec"].get("nodeName")


def wait_for_reserved_node(pods, node):
    """Create a pod that may run on one node only; return its Gang when it waits for that node."""
    marks = {keys.POD_GROUP_NAME: "late", keys.POD_GROUP_MIN_AVAILABLE: "1"}
    pods.create(name="late", labels=marks, spec=on(node))
    return wait_for_phase(pods, "late", "Waiting", KEPT)


def test_an_aged_gang_reserves_no_node_that_it_could_never_use(reserved, pods, term):
    before = term()

    took = [seconds_until_placed(pods, f"honest-{i}") for i in range(3)]

    assert sorted(took)[LATEST] < SOON
    placed = [where(pods, f"honest-{i}").values() for i in range(3)]
    assert {node for gang in placed for gpus in gang for node, _ in gpus} == {reserved[1].name}
    assert term() == before


def test_a_pod_that_waits_for_a_reserved_node_learns_no_name_of_another_tenant(reserved, pods):
    gang = wait_for_reserved_node(pods, reserved[0])

    assert "secret" not in str(gang["status"])
    events = pods.api.get(f"/api/v1/namespaces/{pods.namespace}/events")["items"]
    assert "secret" not in str([one["message"] for one in events])


@soak.long
def test_a_node_is_reserved_for_a_minute_at_most(reserved, pods):
    wait_for_reserved_node(pods, reserved[0])

    wait_until(lambda: node_of(pods, "late") == reserved[0].name, "it is bound", 150)


def test_hundreds_of_pods_that_never_fit_do_not_delay_other_gangs(machines, pods, tenant, term):
    machines(4)
    before = term()
    for i in range(300):
        spec = {
            "containers": [container({keys.GPU_WHOLE: 8, "cpu": f"{1_000 + i}"})],
            "nodeSelector": {f"example.com/tenant-{i}": "none"},
        }
        tenant.create(name=f"never-{i}", spec=spec)

    took = [seconds_until_placed(pods, f"honest-{i}") for i in range(3)]

    assert sorted(took)[LATEST] < SOON
    assert term() == before


def test_pods_that_wait_in_large_numbers_do_not_delay_another_tenant(machines, pods, tenant, term):
    """Each gang that ends frees GPUs, so that all of the pods may fit."""
    machines(1)
    before = term()
    for i in range(soak.often(300, 10_000)):
        spec = {
            "containers": [container({keys.GPU_WHOLE: 1})],
            "nodeSelector": {f"example.com/tenant-{i}": "none"},
        }
        tenant.create(name=f"waits-{i}", spec=spec)

    took = []
    for i in range(5):
        took.append(seconds_until_placed(pods, f"honest-{i}", 4))
        for name in where(pods, f"honest-{i}"):
            pods.api.delete(f"{pods.path}/{name}", gracePeriodSeconds="0")

    assert sorted(took)[LATEST] < SOON
    assert term() == before
