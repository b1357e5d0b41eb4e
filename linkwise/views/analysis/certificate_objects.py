"""Read the state of certificates from objects in files."""

from collections.abc import Iterable

import msgspec

from linkwise.cluster.keys import CERTS, CERTS_KEY
from linkwise.cluster.objects.certificate_state import CertificateState
from linkwise.cluster.objects.webhook_configuration import WebhookConfiguration
from linkwise.manifest.value import InputError, Value
from linkwise.runtime.kube.objects import ConfigMap
from linkwise.views.analysis.certificates import (
    CONFIGURATION,
    KINDS,
    CertificateReport,
    certificate_report,
)


def parse_state(config_map: object) -> CertificateState:
    """Return the state in a ConfigMap of certs.

    Raises:
        InputError: It has none.
    """
    try:
        text = (msgspec.convert(config_map, ConfigMap).data or {}).get(CERTS_KEY, "")
        if text:
            return msgspec.json.decode(text, type=CertificateState)
    except (msgspec.DecodeError, RecursionError):
        raise InputError(
            f"the ConfigMap {CERTS} is not of this version. Compare linkwise --version."
        ) from None
    raise InputError(f"the ConfigMap {CERTS} is empty. See the log of certs.")


def read_certificates(objects: Iterable[Value]) -> CertificateReport:
    """Return the certificates that objects describe: the ConfigMap of certs, and registrations.

    Raises:
        InputError: The ConfigMap is missing, or an object cannot be read.
    """
    state, configurations = None, dict[str, WebhookConfiguration | None]()
    for value in objects:
        head = value.mapping()
        kind, metadata = head.get("kind"), head.get("metadata")
        name = metadata.get("name") if isinstance(metadata, dict) else None
        if kind == "ConfigMap" and name == CERTS:
            try:
                state = parse_state(head)
            except InputError as error:
                raise value.error(str(error)) from None
        elif kind in KINDS and name == CONFIGURATION:
            try:
                configurations[str(kind)] = msgspec.convert(head, WebhookConfiguration)
            except msgspec.ValidationError as error:
                raise value.error(f"{error}. Export it again.") from None
    if state is None:
        raise InputError(f"there is no ConfigMap {CERTS} in these files. Export it with kubectl.")
    missing = dict.fromkeys(kind for kind in KINDS if kind not in configurations)
    return certificate_report(state, {**configurations, **missing})
