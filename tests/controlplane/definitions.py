"""Define kinds of other systems on an API server, which keeps any field of them."""

from controlplane.api import Api, refusal
from controlplane.manifests import DEFINITIONS
from controlplane.process import wait_until

_SCHEMA = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def define(api: Api, group: str, kind: str, *versions: str) -> None:
    """Create the definition of a kind, and wait until it is served.

    Args:
        api: The API server, as an administrator.
        group: The API group of the kind.
        kind: The kind; its plural has an `s`.
        versions: The last one is stored.
    """
    plural = f"{kind.lower()}s"
    served = [
        {
            "name": version,
            "served": True,
            "storage": version == versions[-1],
            "schema": {"openAPIV3Schema": _SCHEMA},
        }
        for version in versions
    ]
    names = {"kind": kind, "plural": plural}
    spec = {"group": group, "names": names, "scope": "Namespaced", "versions": served}
    api.create(DEFINITIONS, {"metadata": {"name": f"{plural}.{group}"}, "spec": spec})
    for version in versions:
        path = f"/apis/{group}/{version}/{plural}"
        wait_until(lambda path=path: refusal(lambda: api.get(path)) == "", f"{path} is served")
