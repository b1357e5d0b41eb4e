"""Requests of a tenant: each creates or changes a pod by a way that the API has."""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

from controlplane.api import Api, ApiError
from controlplane.bypass.hostile_pod import (
    IMAGE,
    Json,
    a_pod,
    annotations,
    mounts,
    variables,
)
from controlplane.bypass.spelling import encode, quantity

from linkwise.cluster import keys

_JSON, _YAML = "application/json", "application/yaml"
_APPLY, _MERGE = "application/apply-patch+yaml", "application/merge-patch+json"
_STRATEGIC, _STEPS = "application/strategic-merge-patch+json", "application/json-patch+json"


@dataclass(slots=True)
class Tenant:
    """Tries one thing after another, as a random number generator decides."""

    api: Api
    """As the tenant sees it."""
    namespace: str
    nodes: tuple[str, ...]
    random: Random
    prefix: str
    """Of the names of its pods, which another tenant of the namespace does not use."""
    names: list[str] = field(default_factory=list)
    gated: float = 0
    """How many of its pods have Linkwise's gate, as if the webhook had reviewed them."""
    created: int = 0
    refused: int = 0

    def attempt(self) -> None:
        """Send one request, and count whether it was accepted."""
        ways: tuple[Callable[[], None], ...] = (
            *((self._create,) * 8),
            *(self._create_by_apply, self._create_by_job),
            *((self._delete,) * 4 if len(self.names) > 12 else ()),
            *((self._patch_metadata, self._patch_gates, self._ephemeral) if self.names else ()),
            *((self._status, self._resize, self._replace, self._bind) if self.names else ()),
        )
        try:
            self.random.choice(ways)()
        except (ApiError, OSError):
            # An API server also ends connections instead of an answer.
            self.refused += 1

    def _send(self, method: str, path: str, body: object, content: str, **query: str) -> None:
        text = encode(body, self.random, self.random.choice((0, 0, 0.02, 0.1)))
        self.api.send(method, path, text.encode(), content, fieldValidation="Ignore", **query)

    def _path(self, name: str = "", subresource: str = "") -> str:
        parts = (f"/api/v1/namespaces/{self.namespace}/pods", name, subresource)
        return "/".join(part for part in parts if part)

    def _new(self) -> Json:
        name = f"{self.prefix}-{len(self.names)}-{self.random.randrange(10**6)}"
        pod = a_pod(name, self.nodes, self.random)
        if self.random.random() < self.gated:
            pod["spec"]["schedulingGates"] = [{"name": keys.GANG}]
        return pod

    def _any(self) -> str:
        return self.random.choice(self.names[-20:])

    def _made(self, name: str) -> None:
        self.names.append(name)
        self.created += 1

    def _create(self) -> None:
        pod = self._new()
        self._send("POST", self._path(), pod, self.random.choice((_JSON, _YAML)))
        self._made(pod["metadata"]["name"])

    def _create_by_apply(self) -> None:
        pod = self._new()
        name = pod["metadata"]["name"]
        self._send("PATCH", self._path(name), pod, _APPLY, fieldManager="tenant", force="true")
        self._made(name)

    def _create_by_job(self) -> None:
        pod = self._new()
        spec = {**pod["spec"], "restartPolicy": "Never"}
        template = {"metadata": {**pod["metadata"], "name": ""}, "spec": spec}
        job = {"template": template, "backoffLimit": 1, "activeDeadlineSeconds": 20}
        path = f"/apis/batch/v1/namespaces/{self.namespace}/jobs"
        body = {"metadata": {"name": pod["metadata"]["name"]}, "spec": job}
        self._send("POST", path, body, _JSON)

    def _delete(self) -> None:
        name = self.names.pop(self.random.randrange(len(self.names)))
        self.api.delete(self._path(name))

    def _patch_metadata(self) -> None:
        change = annotations(self.random)
        if self.random.random() < 0.3:
            change = dict.fromkeys(change)
        body = {"metadata": {"annotations": change}}
        content = self.random.choice((_MERGE, _STRATEGIC))
        self._send("PATCH", self._path(self._any()), body, content)

    def _patch_gates(self) -> None:
        name = self._any()
        gates = "/spec/schedulingGates"
        delete = {"$patch": "delete", "name": keys.GANG}
        ways: tuple[tuple[str, object], ...] = (
            (_STEPS, [{"op": "remove", "path": gates}]),
            (_STEPS, [{"op": "replace", "path": gates, "value": []}]),
            (_MERGE, {"spec": {"schedulingGates": None}}),
            (_STRATEGIC, {"spec": {"schedulingGates": [delete]}}),
            (_MERGE, {"spec": {"nodeSelector": {keys.HOSTNAME: self.nodes[0]}}}),
        )
        content, body = self.random.choice(ways)
        self._send("PATCH", self._path(name), body, content)

    def _ephemeral(self) -> None:
        container: Json = {"name": f"debug-{self.random.randrange(10**6)}", "image": IMAGE}
        if self.random.random() < 0.7:
            container["env"] = variables(self.random)
        if self.random.random() < 0.2:
            container["volumeMounts"] = mounts(self.random)
        if self.random.random() < 0.2:
            amount = quantity(1, self.random)
            container["resources"] = {"limits": {keys.GPU_WHOLE: amount}}
        body = {"spec": {"ephemeralContainers": [container]}}
        self._send("PATCH", self._path(self._any(), "ephemeralcontainers"), body, _STRATEGIC)

    def _status(self) -> None:
        body = {
            "metadata": {"annotations": annotations(self.random)},
            "status": {"nominatedNodeName": self.nodes[0]},
        }
        self._send("PATCH", self._path(self._any(), "status"), body, _MERGE)

    def _resize(self) -> None:
        limits = {self.random.choice((keys.GPU_WHOLE, keys.GPU_MEM, "cpu")): "8"}
        container = {"name": "main", "resources": {"limits": limits, "requests": limits}}
        body = {"spec": {"containers": [container]}}
        self._send("PATCH", self._path(self._any(), "resize"), body, _STRATEGIC)

    def _replace(self) -> None:
        """Write a pod again as it is, but for one field."""
        name = self._any()
        pod = self.api.get(self._path(name))
        part = self.random.randrange(4)
        if part == 0:
            pod["metadata"]["annotations"] = annotations(self.random)
        elif part == 1:
            pod["spec"].pop("schedulingGates", None)
        elif part == 2:
            pod["spec"]["containers"][0]["env"] = variables(self.random)
        else:
            amounts = {keys.GPU_WHOLE: quantity(8, self.random)}
            pod["spec"]["containers"][0]["resources"] = {"limits": amounts, "requests": amounts}
        self._send("PUT", self._path(name), {**pod, "apiVersion": "v1", "kind": "Pod"}, _JSON)

    def _bind(self) -> None:
        """Try what the role `edit` does not include."""
        name = self._any()
        target = {"apiVersion": "v1", "kind": "Node", "name": self.random.choice(self.nodes)}
        metadata = {"name": name, "annotations": annotations(self.random)}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        self._send("POST", self._path(name, "binding"), body, _JSON)

    def clear(self) -> None:
        """Delete the oldest pods, so that others get GPUs."""
        for name in self.names[:-10]:
            with suppress(ApiError, OSError):
                self.api.delete(self._path(name))
        del self.names[:-10]


def described(pod: Json) -> str:
    """Return a pod in one line, as a failure shows it."""
    return json.dumps({"annotations": pod["metadata"].get("annotations"), "spec": pod["spec"]})
