"""Attacks of a tenant with role `edit`, of a client of open ports, and of the agent of a node.

Each attack goes on while its block runs. Requests that are refused are no error.
"""

import json
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import combinations, count, cycle
from random import Random
from ssl import SSLSocket
from threading import Event, Thread
from uuid import uuid4

from controlplane.api import Api, ApiError, Object
from controlplane.dryruns import person
from controlplane.gangs import gang_labels
from controlplane.pods import Pods, a_pod, container
from controlplane.process import NotReadyError, wait_until
from controlplane.raw_requests import connect, post, review, send, status
from controlplane.scorer import LEASE
from controlplane.soak import often
from controlplane.webhook import Webhook

from linkwise.cluster import container_variables, keys
from linkwise.cluster.nodes.topology_configmap import PublishedTopology, write_published
from linkwise.topology.machine import Level, Machine, gpu_records

GPU = {keys.GPU_WHOLE: 1}
NODES = tuple(f"gpu-{i}" for i in range(4))
"""All nodes on which pods are placed, of eight GPUs each."""
HOSTILE_NODE = "hostile"
"""A node of 16 GPUs that is cordoned, so that what its agent publishes can harm only the scorer."""
AGEING = "apiVersion: linkwise.dev/v1alpha1\nkind: Policy\ngangs: {ageingMinutes: 0}\n"
"""A unit that waits is aged at once; as shipped it takes ten minutes."""
_POLICY = "apiVersion: linkwise.dev/v1alpha1\nkind: Policy\n"
_OTHER_SOURCE = "127.0.0.2"
_BUILD_SECONDS = 3.0
"""For the tables of 16 GPUs, about [s]."""
_CONNECTIONS = 600
"""To the open ports of all processes together."""
_GET_METRICS = b"GET /metrics HTTP/1.1\r\nHost: any\r\n\r\n"
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
    probes: tuple[int, ...] = ()
    """The open ports of webhook and scorer."""
    dropped: list[int] = field(default_factory=list)
    """Statuses that other clients got instead of 200, during an attack on connections."""
    used: list[str] = field(default_factory=list)
    """Nodes that are not refused after their machines changed too often."""

    def create(self, name: str, *limits: Mapping[str, object], **given: object) -> None:
        """Try to create a pod; arguments as of `Pods.create`."""
        with suppress(ApiError, OSError):
            self.pods.create(*limits, name=name, **given)


Attack = Callable[[Tenant], AbstractContextManager[None]]


def a_tenant(
    webhook: Webhook, namespace: str, policy: Callable[[str], None], probes: tuple[int, ...]
) -> Tenant:
    """Create the account, and wait until its role is in force.

    Args:
        webhook: The only replica.
        namespace: Of the tenant.
        policy: Writes the administrator's policy.
        probes: The open ports of webhook and scorer.
    """
    account = person(webhook, namespace)
    api: Api = webhook.plane.api_as(webhook.plane.token(namespace, "ann"))
    pods = Pods(api, namespace)
    wait_until(lambda: bool(pods.create({}, name="probe", dryRun="All")), "the role is in force")
    return Tenant(webhook, pods, account.token, policy, probes)


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
        (container_variables.ENV_VISIBLE_DEVICES, "all", {}),
        (container_variables.ENV_CGPU_OFF, "true", {keys.GPU_MEM: 4}),
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


@contextmanager
def names_like_ours(tenant: Tenant) -> Iterator[None]:
    """Send pods whose resources resemble ours, to the webhook and through the API server."""
    made = count()

    def pod(containers: int, names: int) -> Object:
        amounts = ({_like_ours(next(made)): 1 for _ in range(names)} for _ in range(containers))
        return {"containers": [container(amount, f"c{i}") for i, amount in enumerate(amounts)]}

    # Made beforehand, since the process of the attacker is that of the honest tenant, too.
    bodies = cycle([review({"metadata": {}, "spec": pod(300, 250)}) for _ in range(4)])
    specs = cycle([{**pod(60, 60), "nodeName": "none"} for _ in range(4)])

    def ask() -> None:
        send(tenant.webhook, next(bodies), source=_OTHER_SOURCE)

    def create() -> None:
        tenant.create(f"like-{next(made)}", spec=next(specs))

    with _flood(ask), _flood(create, clients=often(1, 8)):
        yield


@contextmanager
def unread_answers(tenant: Tenant) -> Iterator[None]:
    """Ask for large answers on many connections, and read none of them."""
    limits = {keys.GPU_CORE: 3}
    containers = [container(limits, f"{i:03}{'x' * 900}") for i in range(100)]
    body = review({"metadata": {}, "spec": {"containers": containers}})
    request = post(len(body)) + body

    def open_one(_: int) -> None:
        with suppress(OSError):
            one = stack.enter_context(connect(tenant.webhook, source=_OTHER_SOURCE, timeout=1))
            for _ in range(often(20, 50)):
                one.sendall(request)

    with ExitStack() as stack, ThreadPoolExecutor(2) as clients:
        opened = clients.map(open_one, range(often(40, 120)))
        yield
        list(opened)


@contextmanager
def machines_that_change(tenant: Tenant) -> Iterator[None]:
    """Publish other links of 16 GPUs again and again, each when the tables of the last are built.

    An agent may write the ConfigMap of its own node.
    """
    api = tenant.webhook.plane.api
    path = f"/api/v1/namespaces/{keys.TOPOLOGY_NAMESPACE}/configmaps"
    path += f"/{keys.TOPOLOGY_NAME_PREFIX}{HOSTILE_NODE}"
    changes = [{"data": _published(_random_machine(i))} for i in range(often(8, 46))]
    over = Event()

    def is_refused() -> bool:
        annotations = api.get(LEASE)["metadata"].get("annotations", {})
        return HOSTILE_NODE in annotations.get(keys.REFUSED_MACHINES, "")

    def publish() -> None:
        for change in changes:
            api.patch(path, change)
            if not is_refused():
                over.wait(_BUILD_SECONDS)

    with ThreadPoolExecutor(1) as agent:
        published = agent.submit(publish)
        yield
        published.result()
    try:
        wait_until(is_refused, f"{HOSTILE_NODE} is refused", 10)
    except NotReadyError:
        tenant.used.append(HOSTILE_NODE)


@contextmanager
def flood_of_metrics(tenant: Tenant) -> Iterator[None]:
    """Ask the open ports for their metrics, on many connections from many addresses."""
    targets = [
        (f"127.0.1.{i % 50 + 1}", port)
        for i in range(_CONNECTIONS // len(tenant.probes))
        for port in tenant.probes
    ]
    over = Event()

    def ask(own: Sequence[tuple[str, int]]) -> None:
        with ExitStack() as stack:
            opened = [stack.enter_context(_Client(*target)) for target in own]
            while not over.wait(often(1000, 250) / 1000):
                for client in opened:
                    client.ask()

    with ThreadPoolExecutor(4) as clients:
        asked = [clients.submit(ask, targets[i::4]) for i in range(4)]
        yield
        over.set()
        for one in asked:
            one.result()


class _Client:
    """A connection that asks for metrics without reading them, and is opened again when it ends."""

    def __init__(self, source: str, port: int) -> None:
        self._source, self._port = source, port
        self._connection: socket.socket | None = None

    def __enter__(self) -> "_Client":
        return self

    def __exit__(self, *_: object) -> None:
        if self._connection:
            self._connection.close()

    def ask(self) -> None:
        """Send a request, and drop what has arrived of earlier answers."""
        try:
            if self._connection is None:
                address, source = ("127.0.0.1", self._port), (self._source, 0)
                self._connection = socket.create_connection(address, 0.2, source)
                self._connection.setblocking(False)
            self._connection.sendall(_GET_METRICS)
            with suppress(BlockingIOError):
                while self._connection.recv(1 << 20):
                    pass
        except OSError:
            self.__exit__()
            self._connection = None


def _random_machine(seed: int) -> Machine:
    """Return 16 GPUs of random links: a class of machines of its own, whose tables take 24 MB."""
    random, n = Random(seed), range(16)  # noqa: S311 - links of tests.
    links = {pair: random.choice((0, 0, 0, 0, 1, 2)) for pair in combinations(n, 2)}
    return Machine(
        tuple(tuple(links.get((min(i, j), max(i, j)), 0) for j in n) for i in n),
        tuple(tuple(Level.SYS if i != j else Level.UNKNOWN for j in n) for i in n),
        gpu_records((0,) * 16),
    )


def _published(machine: Machine) -> dict[str, str]:
    pairs = [[0.0] * machine.n] * machine.n
    return write_published(PublishedTopology(machine, (True,) * machine.n), pairs)


def _like_ours(number: int) -> str:
    """Return one of the many permutations of a resource name."""
    letters = list(keys.NVIDIA_GPU)
    Random(number).shuffle(letters)  # noqa: S311 - names of tests.
    return "".join(letters)


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
