"""The CAs, as the Secret `linkwise-ca` holds them.

| key | content, PEM |
|---|---|
| `current.crt`, `current.key` | the CA that signs serving certificates (leaves) |
| `next.crt`, `next.key` | the CA that is announced: trusted, and not signing yet |
| `previous.crt` | CAs that are trusted until servers have stopped using their leaves |

The phase of a rotation follows from the keys that are present, so that any replica can continue it.
The key of a CA that no longer signs is not kept. There is no current CA after the Secret was lost:
the leaves of the lost CA stay trusted until the next CA can sign.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from cryptography import x509

from certs.authority import KeyPair
from certs.pem import (
    ContentError,
    certificates_pem,
    content,
    encode,
    key_pem,
    read_certificates,
    read_pair,
)

CURRENT_CERTIFICATE, CURRENT_KEY = "current.crt", "current.key"
NEXT_CERTIFICATE, NEXT_KEY = "next.crt", "next.key"
PREVIOUS_CERTIFICATES = "previous.crt"


@dataclass(frozen=True, slots=True)
class Authorities:
    """All CAs: at least one of current and next."""

    current: KeyPair | None
    next: KeyPair | None = None
    previous: tuple[x509.Certificate, ...] = ()

    @property
    def certificates(self) -> tuple[x509.Certificate, ...]:
        """Certificates of all trusted CAs, oldest first."""
        pairs = (self.current, self.next)
        return (*self.previous, *(pair.certificate for pair in pairs if pair))

    @property
    def bundle(self) -> bytes:
        """The `caBundle` of webhook configurations [PEM]."""
        return certificates_pem(self.certificates)


def write_authorities(authorities: Authorities) -> dict[str, str | None]:
    """Return the data of the Secret in base 64; None removes a key."""
    contents: dict[str, bytes] = {}
    for pair, certificate, key in (
        (authorities.current, CURRENT_CERTIFICATE, CURRENT_KEY),
        (authorities.next, NEXT_CERTIFICATE, NEXT_KEY),
    ):
        if pair:
            contents |= {certificate: certificates_pem([pair.certificate]), key: key_pem(pair)}
    if authorities.previous:
        contents[PREVIOUS_CERTIFICATES] = certificates_pem(authorities.previous)
    keys = (CURRENT_CERTIFICATE, CURRENT_KEY, NEXT_CERTIFICATE, NEXT_KEY, PREVIOUS_CERTIFICATES)
    return {**dict.fromkeys(keys), **encode(contents)}


def read_authorities(data: Mapping[str, str]) -> Authorities:
    """Return the CAs in the data of the Secret.

    Raises:
        ContentError: The message names the key and the error.
    """

    def pair(certificate: str, key: str) -> KeyPair | None:
        is_absent = certificate not in data and key not in data
        return None if is_absent else read_pair(data, certificate, key)

    current, following = pair(CURRENT_CERTIFICATE, CURRENT_KEY), pair(NEXT_CERTIFICATE, NEXT_KEY)
    if not current and not following:
        raise ContentError(f"{CURRENT_CERTIFICATE} and {NEXT_CERTIFICATE} are missing")
    previous: tuple[x509.Certificate, ...] = ()
    if PREVIOUS_CERTIFICATES in data:
        pem = content(data, PREVIOUS_CERTIFICATES)
        previous = read_certificates(pem, PREVIOUS_CERTIFICATES)
    return Authorities(current, following, previous)
