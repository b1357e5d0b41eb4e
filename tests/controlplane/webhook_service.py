"""The Service of the webhook leads to its process, so that the API server's proxy reaches it."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from controlplane.api import Object
from controlplane.manifests import NAMESPACE
from controlplane.relay import Relay
from controlplane.webhook import Webhook

_HOME = f"/api/v1/namespaces/{NAMESPACE}"
_SLICES = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices"
_SERVICE, _POD = "linkwise-webhook", "behind-the-service"


@contextmanager
def in_service(webhook: Webhook) -> Iterator[None]:
    """Name an address of this machine, where the process answers, as that of a pod of the Service.

    An API server proxies to addresses of pods alone, and to none of the loopback interface. Up to
    1.36 it reads them in Endpoints, later in EndpointSlices.
    """
    api, address = webhook.plane.api, _address()
    with Relay(lambda: [webhook.ports[1]], (address, 0)) as relay:
        target = {"kind": "Pod", "name": _POD, "namespace": NAMESPACE}
        port = {"name": "dry-run", "port": relay.port}
        api.create(f"{_HOME}/pods", _pod())
        made = [f"{_HOME}/pods/{_POD}"]
        try:
            status = {"podIP": address, "podIPs": [{"ip": address}]}
            api.patch(f"{made[0]}/status", {"status": status})
            api.create(
                f"{_HOME}/endpoints",
                {
                    "metadata": {"name": _SERVICE},
                    "subsets": [
                        {"addresses": [{"ip": address, "targetRef": target}], "ports": [port]}
                    ],
                },
            )
            made.append(f"{_HOME}/endpoints/{_SERVICE}")
            api.create(
                _SLICES,
                {
                    "metadata": {"name": _POD, "labels": {"kubernetes.io/service-name": _SERVICE}},
                    "addressType": "IPv4",
                    "endpoints": [
                        {
                            "addresses": [address],
                            "conditions": {"ready": True},
                            "targetRef": target,
                        }
                    ],
                    "ports": [port],
                },
            )
            made.append(f"{_SLICES}/{_POD}")
            yield
        finally:
            for path in made:
                api.delete(path, gracePeriodSeconds="0")


def _pod() -> Object:
    container = {
        "name": "webhook",
        "image": "registry.example/none",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    spec = {"containers": [container], "schedulerName": "nobody"}
    return {"metadata": {"name": _POD}, "spec": spec}


def _address() -> str:
    """Return an address of this machine by which others reach it; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unsent:
        unsent.connect(("198.51.100.1", 9))
        address: str = unsent.getsockname()[0]
        return address
