"""Attacks of a tenant with role `edit`, and of a client of the webhook's ports.

Each attack goes on while its block runs. Requests that are refused are no error.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from ssl import SSLSocket
from threading import Event, Thread
from uuid import uuid4

from controlplane.api import Api, ApiError, Object
from controlplane.dryruns import person
from controlplane.gangs import gang_labels
from controlplane.pods import Pods, a_pod, container
from controlplane.process import wait_until
from controlplane.raw_requests import connect, post, review, send, status
from controlplane.webhook import Webhook

from cluster import keys

GPU = {keys.GPU_WHOLE: 1}
NODES = tuple(f"gpu-{i}" for i in range(4))
"""All nodes, of eight GPUs each."""
AGEING = "apiVersion: linkwise.dev/v1alpha1\nkind: Policy\ngangs: {ageingMinutes: 0}\n"
"""A unit that waits is aged at once; as shipped it takes ten minutes."""
_POLICY = "apiVersion: linkwise.dev/v1alpha1\nkind: Policy\n"
_OTHER_SOURCE = "127.0.0.2"
_ANNOTATIONS = 262_144
"""All annotations of an object may have so many bytes."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """A ServiceAccount of role `edit` in a namespace of its own."""

    webhook: Webhook
    pods: Pods
    """As itself."""
    dry_run_token: str
    policy: Callable[[str], None]
    """Writes the administrator's policy."""
    dropped: list[int] = field(default_factory=list)
    """Statuses that other clients got instead of 200, during an attack on connections."""

    def create(self, name: str, *limits: Mapping[str, object], **given: object) -> None:
        """Try to create a pod; arguments as of `Pods.create`."""
        with suppress(ApiError, OSError):
            self.pods.create(*limits, name=name, **given)


Attack = Callable[[Tenant], AbstractContextManager[None]]


def a_tenant(webhook: Webhook, namespace: str, policy: Callable[[str], None]) -> Tenant:
    """Create the account, and wait until its role is in force."""
    account = person(webhook, namespace)
    api: Api = webhook.plane.api_as(webhook.plane.token(namespace, "ann"))
    pods = Pods(api, namespace)
    wait_until(lambda: bool(pods.create({}, name="probe", dryRun="All")), "the role is in force")
    return Tenant(webhook, pods, account.token, policy)


@contextmanager
def nothing(_tenant: Tenant) -> Iterator[None]:
    """Do nothing: the baseline."""
    yield


@contextmanager
def a_name_that_deposes(tenant: Tenant) -> Iterator[None]:
    """Make every patch fail with a message that contains the name of a policy."""
    tenant.create("linkwise-fence-0", GPU, annotations=_nearly_full())
    yield


@contextmanager
def unreadable_pods(tenant: Tenant) -> Iterator[None]:
    """Take all GPUs of all nodes but one, by pods with an amount of 70 digits."""
    for node in NODES[:-1]:
        spec = {"nodeName": node, "schedulerName": keys.SCHEDULER}
        tenant.create(f"on-{node}", {keys.GPU_WHOLE: 8, "memory": "1" * 70}, spec=spec)
    yield


def hostile_config_map(policy: bool, text: Callable[[], str]) -> Attack:
    """Return an attack that floods validation with a policy or profiles."""
    home = (
        (keys.POLICY_NAMESPACE, keys.POLICY_NAME, keys.POLICY_KEY)
        if policy
        else (keys.PROFILE_NAMESPACE, keys.PROFILE_NAME, keys.PROFILE_KEY)
    )

    @contextmanager
    def attack(tenant: Tenant) -> Iterator[None]:
        namespace, name, key = home
        body = review({"data": {key: text()}}, "ConfigMap", namespace=namespace, name=name)
        with _flood(lambda: send(tenant.webhook, body, path="/validate?timeout=3s", timeout=30)):
            yield

    return attack


def aliases() -> str:
    """Return 98 KiB that stand for 700 MB."""
    return f"{_POLICY}x: &a {'A' * 70_000}\ncatalogue: [{','.join(['*a'] * 10_000)}]\n"


def digits_and_quotes() -> str:
    """Return a number that is too long, and quotes that never end."""
    return "[" + "1" * 5000 + '"\\' * 78_000


def many_keys() -> str:
    """Return 3.4 MiB of YAML with a mistake in each line."""
    return _POLICY + "".join(f"k{i}: 1\n" for i in range(330_000))


def many_selectors() -> str:
    """Return as many profiles as a request holds, all for the same pods."""
    selector = {"matchLabels": {"a": "b"}}
    effect = {"labels": {"x": "y"}}
    profiles = (
        {"name": str(i), "objectSelector": selector, "effect": effect} for i in range(40_000)
    )
    return json.dumps(list(profiles), separators=(",", ":"))


@contextmanager
def pods_that_skip_judgement(tenant: Tenant) -> Iterator[None]:
    """Make every node unaccounted by pods that bypass the webhook."""
    mirror = {"kubernetes.io/config.mirror": "any"}
    many = {"containers": [container(GPU)] + [container({}, f"c{i}") for i in range(1100)]}
    labels = {f"a{i}": "" for i in range(5000)}
    for way, scheduler in (("stock", {}), ("ours", {"schedulerName": keys.SCHEDULER})):
        first, second, third, last = ({"nodeName": node, **scheduler} for node in NODES)
        tenant.create(f"mirror-{way}", GPU, annotations=mirror, spec=first)
        tenant.create(f"containers-{way}", spec={**second, **many})
        tenant.create(f"labels-{way}", GPU, labels=labels, spec=third)
        tenant.create(f"none-{way}", {keys.GPU_WHOLE: 0}, spec=last)
    yield


@contextmanager
def host_ports(tenant: Tenant) -> Iterator[None]:
    """Let two members of a gang ask for one port at 6,000 addresses each, all of them different."""
    for i in range(2):
        addresses = (f"10.{i}.{number // 250}.{number % 250 + 1}" for number in range(6000))
        ports = [{"containerPort": 80, "hostPort": 80, "hostIP": one} for one in addresses]
        spec = {"containers": [{**container(GPU), "ports": ports}]}
        tenant.create(f"ports-{i}", labels=gang_labels("ports", 2), spec=spec)
    yield


@contextmanager
def an_aged_unit(tenant: Tenant) -> Iterator[None]:
    """Wait for a node that the tenant itself keeps in use."""
    tenant.create("holds", GPU, spec=_only_on(NODES[0]))
    _wait_bound(tenant, "holds")
    tenant.create("wants", {keys.GPU_WHOLE: 8}, spec=_only_on(NODES[0]))
    tenant.policy(AGEING)
    yield


@contextmanager
def large_gated_pods(tenant: Tenant) -> Iterator[None]:
    """Let 20 pods wait that are as large as pods can be, of many small values."""
    values = [str(i) for i in range(150_000)]
    for i in range(20):
        tenant.create(f"large-{i}", GPU, spec=_affinity("matchExpressions", "none", values))
    yield


def hostile_dry_run(text: Callable[[], str]) -> Attack:
    """Return a flood of dry runs of a text."""

    @contextmanager
    def attack(tenant: Tenant) -> Iterator[None]:
        body, path = text().encode(), f"/v1/dry-run?namespace={tenant.pods.namespace}"
        port, token = tenant.webhook.ports[1], tenant.dry_run_token

        def ask() -> None:
            given = {"path": path, "port": port, "token": token, "timeout": 30.0}
            send(tenant.webhook, body, "application/yaml", **given)

        with _flood(ask):
            yield

    return attack


def pod_of_aliases() -> str:
    """Return a pod of 130 KB that stands for 1 GB, of which a dry run shows the difference."""
    args = ",".join(["*a"] * 10_000)
    limits = f"limits: {{{keys.GPU_WHOLE}: 1}}"
    main = f"{{name: main, image: &a {'A' * 100_000}, args: [{args}], resources: {{{limits}}}}}"
    return f"apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\nspec: {{containers: [{main}]}}\n"


def many_documents() -> str:
    """Return as many documents as a request holds: each on a line of its own, in JSON."""
    return "{}\n" * 85_000


@contextmanager
def forged_environment(tenant: Tenant) -> Iterator[None]:
    """Show all GPUs of a node to a container that has none, and a whole card to a share of it."""
    for name, value, limits in (
        (keys.ENV_VISIBLE_DEVICES, "all", {}),
        (keys.ENV_CGPU_OFF, "true", {keys.GPU_MEM: 4}),
    ):
        forged = {**container(limits), "env": [{"name": name, "value": value}]}
        pod = name.lower().replace("_", "-")
        tenant.create(pod, spec={"containers": [forged]})
        debug = {"name": "debug", "image": "registry.example/cuda", "env": forged["env"]}
        path = f"{tenant.pods.path}/{pod}/ephemeralcontainers"
        with suppress(ApiError, OSError):
            change = {"spec": {"ephemeralContainers": [debug]}}
            tenant.pods.api.patch(path, change, "strategic")
    yield


@contextmanager
def a_gang_that_stays_in_part(tenant: Tenant) -> Iterator[None]:
    """Let one member of a gang be too large for what the scorer writes on it."""
    for i in range(4):
        annotations = _nearly_full() if i == 3 else {}
        tenant.create(f"part-{i}", GPU, labels=gang_labels("part", 4), annotations=annotations)
    yield


@contextmanager
def forged_owners(tenant: Tenant) -> Iterator[None]:
    """Let any number of pods name a large object as their owner, each with another uid."""
    many = [{**container(GPU), "name": f"c{i}"} for i in range(8000)]
    labels = {"app": "large"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": many}}
    spec = {"replicas": 0, "serviceName": "large", "selector": {"matchLabels": labels}}
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "large", "controller": True}
    api, namespace = tenant.pods.api, tenant.pods.namespace
    api.create(
        f"/apis/apps/v1/namespaces/{namespace}/statefulsets",
        {"metadata": {"name": "large"}, "spec": {**spec, "template": template}},
    )

    def create() -> None:
        uid = str(uuid4())
        pod = a_pod(f"forged-{uid}", GPU, labels=gang_labels(uid, 2))
        pod["metadata"]["ownerReferences"] = [{**owner, "uid": uid}]
        with suppress(ApiError):
            api.create(tenant.pods.path, pod)

    with _flood(create, clients=1):
        yield


@contextmanager
def half_sent_bodies(tenant: Tenant) -> Iterator[None]:
    """Open more connections than the webhook has room for, each with half of a body."""
    body = review(a_pod("any", GPU))
    half = post(len(body)) + body[:-1]

    def open_one(_: int) -> None:
        with suppress(OSError):
            one = stack.enter_context(connect(tenant.webhook, source=_OTHER_SOURCE))
            one.sendall(half)

    with ExitStack() as stack:
        others = [stack.enter_context(connect(tenant.webhook)) for _ in range(50)]
        with ThreadPoolExecutor(4) as clients:
            list(clients.map(open_one, range(1020)))
        answers = [_answer(one, post(len(body)) + body) for one in others]
        tenant.dropped.extend(one for one in answers if one != 200)
        yield


def _answer(connection: SSLSocket, request: bytes) -> int:
    with suppress(OSError):
        connection.sendall(request)
    return status(connection)


def _nearly_full() -> dict[str, str]:
    return {"a": "x" * (_ANNOTATIONS - 244)}


def _only_on(node: str) -> Object:
    return _affinity("matchFields", "metadata.name", [node])


def _affinity(kind: str, key: str, values: list[str]) -> Object:
    term = {kind: [{"key": key, "operator": "In", "values": values}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {"affinity": {"nodeAffinity": required}}


def _wait_bound(tenant: Tenant, name: str) -> None:
    wait_until(
        lambda: bool(tenant.pods.all()[name]["spec"].get("nodeName")), f"{name} is bound", 30
    )


@contextmanager
def _flood(call: Callable[[], object], clients: int = 2) -> Iterator[None]:
    """Call a function repeatedly in several threads."""
    over = Event()

    def repeat() -> None:
        while not over.wait(0.05):
            with suppress(OSError):
                call()

    threads = [Thread(target=repeat) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()
