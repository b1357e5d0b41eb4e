"""Compare the published state of certificates with the registrations of the webhooks."""

from base64 import b64decode
from binascii import Error
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from re import DOTALL, findall

from msgspec import Struct

from linkwise.cluster.objects.certificate_state import (
    AuthorityStatus,
    CertificateState,
    NextStep,
    ServerStatus,
)
from linkwise.cluster.objects.webhook_configuration import WebhookConfiguration
from linkwise.views.output.document import Document

CONFIGURATION = "linkwise"
"""Name of the webhook configurations."""
KINDS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


class Registration(Struct, frozen=True, kw_only=True):
    """A webhook configuration."""

    configuration: str
    """Its kind."""
    authorities: list[str] | None = None
    """Fingerprints of the CAs in every `caBundle`; None where the configuration is not known."""
    problem: str | None = None
    """Why calls of its webhooks fail, if they do."""


class CertificateReport(Document, frozen=True, kw_only=True):
    """The certificates of all servers, the CAs, and what API servers trust."""

    mode: str
    """`self`, `cert-manager` or `provided`."""
    phase: str
    """Of the rotation of the CA; empty if other software issues."""
    since: str
    propagation_seconds: int
    """Duration of each wait of a rotation."""
    authorities: tuple[AuthorityStatus, ...]
    servers: tuple[ServerStatus, ...]
    registrations: list[Registration]
    next: NextStep
    problems: list[str]


def certificate_report(
    state: CertificateState, configurations: Mapping[str, WebhookConfiguration | None]
) -> CertificateReport:
    """Return the state of certificates, with all problems.

    Args:
        state: As published by certs.
        configurations: By kind; None where it cannot be read, missing where it does not exist.
    """
    called = [each.issuer for each in state.servers if each.server != "scorer" and each.issuer]
    registrations = [
        _registration(kind, configurations[kind], called)
        if kind in configurations
        else Registration(configuration=kind, problem="it does not exist")
        for kind in KINDS
    ]
    return CertificateReport(
        mode=state.mode,
        phase=state.phase,
        since=state.since,
        propagation_seconds=state.propagation_seconds,
        authorities=state.authorities,
        servers=state.servers,
        registrations=registrations,
        next=state.next,
        problems=list(_problems(state, registrations)),
    )


def _registration(
    kind: str, configuration: WebhookConfiguration | None, issuers: Sequence[str]
) -> Registration:
    if configuration is None:
        return Registration(configuration=kind)
    webhooks = configuration.webhooks or ()
    found = [set(fingerprints(each.client_config.ca_bundle)) for each in webhooks]
    trusted = set.intersection(*found) if found else set[str]()
    is_trusted = trusted.issuperset(issuers)
    problem = None if is_trusted else "its caBundle lacks the CA of a server"
    return Registration(configuration=kind, authorities=sorted(trusted), problem=problem)


def _problems(state: CertificateState, registrations: Sequence[Registration]) -> Iterator[str]:
    for server in state.servers:
        if server.problem:
            yield f"{server.secret}: {server.problem}"
    for each in registrations:
        if each.problem:
            yield f"{each.configuration} linkwise: {each.problem}"


def fingerprints(bundle: str) -> Iterator[str]:
    """Yield the SHA-256 fingerprint of each certificate of a `caBundle`, in hexadecimal."""
    try:
        text = b64decode(bundle).decode("ascii", "replace")
        for body in findall("-----BEGIN CERTIFICATE-----(.*?)-----END", text, DOTALL):
            yield sha256(b64decode(body)).hexdigest()
    except Error:
        return
