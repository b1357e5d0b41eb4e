"""Somebody who may create pods in a namespace, and asks the dry-run API about them."""

import json
import ssl
from dataclasses import dataclass
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from controlplane.api import Object
from controlplane.plane import ControlPlane
from controlplane.process import wait_for
from controlplane.webhook import Webhook

from linkwise.cluster import keys

_NAME = "ann"


@dataclass(frozen=True, slots=True)
class Person:
    """Who asks."""

    webhook: Webhook
    namespace: str
    token: str

    def ask(self, *pods: Object) -> Object:
        """Return the answer about pods of the namespace."""
        return wait_for(lambda: self._answer(pods), "the role is in force")

    def placements(self, *pods: Object) -> list[Object]:
        """Return where each pod would go, once the scorer answers in the time it has."""

        def all_known() -> list[Object] | None:
            found = self._placements(pods)
            known = [one for one in found if one is not None]
            return known if len(known) == len(found) else None

        return wait_for(all_known, "the scorer answers")

    def fits(self, *pods: Object) -> bool:
        """Return whether all of them would fit now."""
        return all(one and one["fits"] for one in self._placements(pods))

    def _placements(self, pods: tuple[Object, ...]) -> list[Object | None]:
        return [pod["placement"] for pod in self.ask(*pods)["pods"]]

    def _answer(self, pods: tuple[Object, ...]) -> Object | None:
        request = Request(  # noqa: S310
            f"{self.webhook.dry_run}/v1/dry-run?namespace={self.namespace}",
            json.dumps(manifest(*pods)).encode(),
            {"Content-Type": "application/json", "Authorization": f"Bearer {self.token}"},
        )
        context = ssl.create_default_context(cadata=self.webhook.ca.cert_pem.decode())
        try:
            with urlopen(request, timeout=30, context=context) as found:  # noqa: S310
                answer: Object = json.load(found)
        except HTTPError as error:
            error.close()
            if error.code != 403:
                raise
            return None
        return answer


def person(webhook: Webhook, namespace: str) -> Person:
    """Make a ServiceAccount that may edit a namespace, and a token of it for dry runs."""
    plane: ControlPlane = webhook.plane
    home, account = f"--namespace={namespace}", f"--serviceaccount={namespace}:{_NAME}"
    plane.kubectl("create", "serviceaccount", _NAME, home)
    plane.kubectl("create", "rolebinding", _NAME, "--clusterrole=edit", account, home)
    made = plane.kubectl("create", "token", _NAME, home, f"--audience={keys.DRY_RUN_AUDIENCE}")
    if made.returncode:
        raise ValueError(made.stderr)
    return Person(webhook, namespace, made.stdout)


def manifest(*pods: Object) -> Object:
    """Return pods as one object that can be sent."""
    items = [{"apiVersion": "v1", "kind": "Pod", **pod} for pod in pods]
    return {"apiVersion": "v1", "kind": "List", "items": items}


def assignments(placements: list[Object]) -> dict[str, tuple[str, list[int]]]:
    """Return node and GPUs of each pod, as a dry run says."""
    return {pod["name"]: (pod["node"], pod["gpus"]) for one in placements for pod in one["pods"]}
