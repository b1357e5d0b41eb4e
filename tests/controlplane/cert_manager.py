"""cert-manager beside a control plane, as an administrator.

Its webhook is left out: it checks what people write, and API servers check the schema without it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from controlplane.binaries import Binaries
from controlplane.manifests import NAMESPACE
from controlplane.other_programs import CERT_MANAGER, CERT_MANAGER_CRDS
from controlplane.plane import ControlPlane
from controlplane.process import Process, wait_until

CERTIFICATES = f"/apis/cert-manager.io/v1/namespaces/{NAMESPACE}/certificates"


@contextmanager
def run_cert_manager(plane: ControlPlane, binaries: Binaries, folder: Path) -> Iterator[Process]:
    """Install the definitions, and run the controllers and the CA injector.

    Args:
        plane: The control plane.
        binaries: The program and the definitions.
        folder: For its log.

    Raises:
        ValueError: The definitions cannot be applied.
    """
    files = [f"-f{path}" for path in binaries.files(CERT_MANAGER_CRDS)]
    for arguments in (("apply", "--server-side"), ("wait", "--for=condition=Established")):
        done = plane.kubectl(*arguments, *files)
        if done.returncode:
            raise ValueError(done.stderr)
    environment = {"KUBECONFIG": str(plane.kubeconfig)}
    log = folder / f"{CERT_MANAGER}.log"
    process = Process(CERT_MANAGER, (binaries[CERT_MANAGER],), log, env=environment)
    plane.processes.start(process)
    try:
        yield process
    finally:
        plane.processes.stop(process)


def renew(plane: ControlPlane, name: str) -> None:
    """Request that a certificate is issued again, as `cmctl renew` does, and wait for it."""
    path = f"{CERTIFICATES}/{name}"
    issuing = {"type": "Issuing", "status": "True", "reason": "ManuallyTriggered"}
    before = plane.api.get(path)["status"]
    conditions = {"conditions": [*before["conditions"], issuing]}
    plane.api.patch(f"{path}/status", {"status": conditions})

    def is_issued() -> bool:
        status = plane.api.get(path)["status"]
        types = [one["type"] for one in status["conditions"]]
        return status["revision"] > before["revision"] and "Issuing" not in types

    wait_until(is_issued, f"{name} is issued again")
