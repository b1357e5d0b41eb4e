"""The public state of all certificates, as the ConfigMap `linkwise-certs` holds it, in JSON.

It has no key. Readers need no access to a Secret. Times are in RFC 3339.
"""

from msgspec import Struct


class AuthorityStatus(Struct, frozen=True, kw_only=True):
    """A trusted CA."""

    role: str
    """`previous`, `current` (it signs) or `next`."""
    serial: str
    """In hexadecimal."""
    sha256: str
    """Fingerprint of the certificate, in hexadecimal."""
    not_before: str
    not_after: str


class ServerStatus(Struct, frozen=True, kw_only=True):
    """The serving certificate of a server, as its Secret holds it."""

    server: str
    secret: str
    """Name of the Secret."""
    problem: str | None = None
    """Why clients do not accept the certificate, or why there is none."""
    serial: str = ""
    issuer: str = ""
    """Fingerprint of the CA that signed it; empty if that is not trusted."""
    not_before: str = ""
    not_after: str = ""
    names: tuple[str, ...] = ()


class NextStep(Struct, frozen=True, kw_only=True):
    """What happens next without any action."""

    text: str
    at: str | None = None
    """When; None: when the present work is done."""


class CertificateState(Struct, frozen=True, kw_only=True):
    """The state of all certificates."""

    mode: str
    """`self`, `cert-manager` or `provided`."""
    phase: str
    """`stable`, `announce`, `wait`, `switch` or `retire`; empty if other software issues."""
    since: str
    """When the phase began."""
    propagation_seconds: int
    """Duration of the waits of a rotation."""
    authorities: tuple[AuthorityStatus, ...]
    servers: tuple[ServerStatus, ...]
    next: NextStep
