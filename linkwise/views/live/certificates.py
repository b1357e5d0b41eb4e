"""Read the state of certificates and the registrations of the webhooks from a live cluster."""

import asyncio

import msgspec

from linkwise.cluster.keys import CERTS, POLICY_NAME, POLICY_NAMESPACE
from linkwise.cluster.objects.certificate_state import CertificateState
from linkwise.cluster.objects.webhook_configuration import WebhookConfiguration
from linkwise.manifest.value import InputError
from linkwise.runtime.kube.paths import api_path, path_below
from linkwise.views.analysis.certificate_objects import parse_state
from linkwise.views.analysis.certificates import KINDS, CertificateReport
from linkwise.views.analysis.certificates import certificate_report as report
from linkwise.views.live.api_reader import ApiReader, Forbidden, NotFound
from linkwise.views.live.kubeconfig import Access
from linkwise.views.live.user_kube import UserKube

_STATE = api_path("v1", "namespaces", POLICY_NAMESPACE, "configmaps", CERTS)
_CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1"
_ROLE = "linkwise-view"


def fetch_certificates(access: Access) -> CertificateReport:
    """Return the certificates of a live cluster.

    Raises:
        InputError: There is no answer, or the state is missing or may not be read.
    """
    return asyncio.run(_fetch(access))


async def _fetch(access: Access) -> CertificateReport:
    async with await UserKube.of(access) as kube:
        reader = ApiReader(kube)
        state = await _state(reader)
        configurations = dict[str, WebhookConfiguration | None]()
        for kind in KINDS:
            path = path_below(_CONFIGURATIONS, f"{kind.lower()}s", POLICY_NAME)
            try:
                plain = await reader.get(path)
                configurations[kind] = msgspec.convert(plain, WebhookConfiguration)
            except NotFound:
                continue
            except Forbidden:
                configurations[kind] = None
        return report(state, configurations)


async def _state(reader: ApiReader) -> CertificateState:
    try:
        plain = await reader.get(_STATE)
    except NotFound:
        reader.fail(f"there is no ConfigMap {CERTS} in {POLICY_NAMESPACE}. Is Linkwise installed?")
    except Forbidden as error:
        reader.fail(f"{error}. Ask for the Role {_ROLE} in {POLICY_NAMESPACE}.")
    try:
        return parse_state(plain)
    except InputError as error:
        reader.fail(str(error))
