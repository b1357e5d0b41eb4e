"""Draw small clusters, and pods that ask for all that kube-scheduler's filters judge."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random

from controlplane.api import Api, Object
from controlplane.drawn_volumes import DrawnVolumes
from controlplane.nodes import NODES, Line
from controlplane.pods import Pods, a_pod, requirement

from linkwise.cluster import keys
from linkwise.cluster.volume_keys import ZONE

WORLD, HOST = "world", keys.HOSTNAME
NIC, HUGE, DISK = "rdma/hca", "hugepages-2Mi", "ephemeral-storage"
_APPS = ("a", "b", "c")
_TEAMS = ("x", "y")
_NODES = 5
_TAINT = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}


@dataclass(frozen=True, slots=True)
class World:
    """Nodes that only the pods of one namespace may use."""

    number: int
    random: Random
    pods: Pods
    volumes: DrawnVolumes = field(init=False)

    def __post_init__(self) -> None:
        volumes = DrawnVolumes(self.number, self.random, self.pods, self.names)
        object.__setattr__(self, "volumes", volumes)

    @property
    def selector(self) -> dict[str, str]:
        """The label of its nodes, and of no other world's."""
        return {WORLD: str(self.number)}

    @property
    def names(self) -> list[str]:
        """The names of its nodes."""
        return [f"world-{self.number}-{index}" for index in range(_NODES)]

    @property
    def lines(self) -> Iterator[Line]:
        """Its nodes as lines of a cluster file's short form."""
        for name in self.names:
            zone = self.random.choice(("east", "west", None))
            place = {ZONE: f"{zone}-{self.number}"} if zone else {}
            yield {
                "name": name,
                "machine": "dgx1-v100",
                "mode": "topology",
                "cpu": self.random.choice((8, 16)),
                "memory": self.random.choice(("12Gi", "32Gi")),
                "pods": self.random.choice((4, 110, 110)),
                "labels": {HOST: name, **place, **self.selector},
                "taints": [_TAINT] if self.random.random() < 0.2 else [],
            }

    @contextmanager
    def filled(self, api: Api) -> Iterator[None]:
        """Give its nodes other resources, cordon some, and run pods of others on them."""
        labels = {**self.selector, "team": self.random.choice(_TEAMS)}
        api.patch(f"/api/v1/namespaces/{self.pods.namespace}", {"metadata": {"labels": labels}})
        for name in self.names:
            amounts = {
                NIC: self.random.choice(("0", "1", "4")),
                HUGE: self.random.choice(("0", "64Mi")),
                DISK: self.random.choice(("1Gi", "10Gi")),
            }
            status = {"capacity": amounts, "allocatable": amounts}
            api.patch(f"{NODES}/{name}/status", {"status": status})
            if self.random.random() < 0.15:
                api.patch(f"{NODES}/{name}", {"spec": {"unschedulable": True}})

        with self.volumes.present():
            for index in range(self.random.randrange(3, 8)):
                # Without regard to any filter.
                self.pods.api.create(self.pods.path, self._other(f"other-{index}"))
            yield

    def _other(self, name: str) -> Object:
        spec = {"nodeName": self.random.choice(self.names), **_resources(self.random, 0)}
        if self.random.random() < 0.15:
            spec["affinity"] = {"podAntiAffinity": _required(self._terms())}
        if self.random.random() < 0.4:
            spec["volumes"] = self.volumes.of_others()
        return a_pod(name, labels={"app": self.random.choice(_APPS)}, **spec)

    def pod(self, name: str) -> Object:
        """Draw a pod that waits for one GPU behind our gate."""
        random = self.random
        spec: dict[str, object] = {
            "nodeSelector": self.selector,
            "schedulingGates": [{"name": keys.GANG}],
            **_resources(random, 1),
        }
        tolerations = [
            {"key": key, "operator": "Exists"} for key in (keys.UNSCHEDULABLE, "dedicated")
        ]
        spec["tolerations"] = [one for one in tolerations if random.random() < 0.5]
        affinity: dict[str, object] = {}
        if random.random() < 0.2:
            zones = [f"{zone}-{self.number}" for zone in ("east", "west")]
            chosen = requirement(ZONE, random.choice(("In", "NotIn")), random.choice(zones))
            terms = {"nodeSelectorTerms": [{"matchExpressions": [chosen]}]}
            affinity["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
        if random.random() < 0.15:
            affinity["podAffinity"] = _required(self._terms())
        if random.random() < 0.2:
            affinity["podAntiAffinity"] = _required(self._terms())
        if random.random() < 0.3:
            spec["topologySpreadConstraints"] = list(_spread(random))
        if random.random() < 0.15:
            spec["hostNetwork"] = True
        if random.random() < 0.3:
            spec["volumes"] = self.volumes.drawn()
        labels = {"app": random.choice(_APPS)}
        return a_pod(name, labels=labels, **spec, affinity=affinity)

    def _terms(self) -> list[Object]:
        random = self.random
        return [
            {
                "labelSelector": _selector(random),
                "topologyKey": random.choice((ZONE, HOST)),
                **({"namespaceSelector": self._namespaces()} if random.random() < 0.3 else {}),
            }
            for _ in range(random.choice((1, 1, 2)))
        ]

    def _namespaces(self) -> Object:
        """Return a selector by labels that selects its namespace, or none."""
        operator = self.random.choice(("In", "NotIn"))
        team = requirement("team", operator, self.random.choice(_TEAMS))
        return {"matchLabels": self.selector, "matchExpressions": [team]}


def _required(terms: Sequence[Object]) -> Object:
    return {"requiredDuringSchedulingIgnoredDuringExecution": terms}


def _selector(random: Random) -> Object:
    if random.random() < 0.5:
        return {"matchLabels": {"app": random.choice(_APPS)}}
    values = random.sample(_APPS, 2)
    operator = random.choice(("In", "NotIn"))
    return {"matchExpressions": [requirement("app", operator, *values)]}


def _spread(random: Random) -> Iterator[Object]:
    for key in random.sample((ZONE, HOST), random.choice((1, 1, 2))):
        yield {
            "topologyKey": key,
            "maxSkew": random.choice((1, 1, 2)),
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": _selector(random),
            "nodeAffinityPolicy": random.choice(("Honor", "Ignore")),
            "nodeTaintsPolicy": random.choice(("Honor", "Ignore")),
            **({"minDomains": random.choice((1, 2, 3))} if random.random() < 0.2 else {}),
        }


def _resources(random: Random, gpus: int) -> dict[str, object]:
    """Return the containers of a pod, with resources of its own or of the pod as a whole."""
    own = {"cpu": random.choice(("500m", "1", "3")), "memory": random.choice(("1Gi", "5Gi"))}
    others = {NIC: "1", HUGE: "32Mi", DISK: "2Gi"}
    limits = {name: amount for name, amount in others.items() if random.random() < 0.12}
    limits |= {keys.GPU_WHOLE: str(gpus)} if gpus else {}
    resources = {"limits": limits, "requests": own}
    container = {"name": "main", "image": "registry.example/none", "resources": resources}
    found: dict[str, object] = {"containers": [container]}
    if random.random() < 0.15:
        found["resources"] = {"requests": {"cpu": "5", "memory": "6Gi"}}
    if random.random() < 0.15:
        large = {**container, "name": "init", "resources": {"requests": {"cpu": "4"}}}
        found["initContainers"] = [large]
    if random.random() < 0.15:
        port = random.choice((80, 81))
        container["ports"] = [{"containerPort": port, "hostPort": port}]
    return found
