"""Run the pods of the chart's hooks as a kubelet would, where there is none."""

import subprocess
import sys
from dataclasses import dataclass, field

from controlplane.api import Object
from controlplane.background import Background
from controlplane.manifests import NAMESPACE, NAMESPACES
from controlplane.plane import ControlPlane
from controlplane.webhook import access

_PODS = f"{NAMESPACES}/{NAMESPACE}/pods"
_PERIOD = 0.2


@dataclass(slots=True)
class HookKubelet(Background):
    """Runs the containers of these pods as processes, under the accounts of the pods."""

    plane: ControlPlane
    component: str = "uninstall"
    """Of the hook. A hook that failed before leaves pods, too."""
    logs: list[str] = field(default_factory=list)
    """What each process wrote."""

    def _run(self) -> None:
        chosen = f"app.kubernetes.io/component={self.component}"
        while not self._over.wait(_PERIOD):
            for pod in self.plane.api.get(_PODS, labelSelector=chosen)["items"]:
                if pod["status"]["phase"] == "Pending":
                    self._start(pod)

    def _start(self, pod: Object) -> None:
        (container,) = pod["spec"]["containers"]
        account = pod["spec"]["serviceAccountName"]
        environment = {one["name"]: one["value"] for one in container.get("env", [])}
        ran = subprocess.run(
            [sys.executable, *container["command"][1:]],
            env={**environment, **access(self.plane, self.plane.site.folder, account)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=120,
        )
        self.logs.append(ran.stdout)
        phase = "Failed" if ran.returncode else "Succeeded"
        path = f"{_PODS}/{pod['metadata']['name']}/status"
        self.plane.api.patch(path, {"status": {"phase": phase}})
