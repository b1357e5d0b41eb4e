"""The state: what the Secret holds, from which everything else is derived.

| key | content, PEM |
|---|---|
| `ca.crt` | every CA to be trusted, oldest first: what registrations get as `caBundle` |
| `ca.key` | their keys, in the same order |
| `tls.crt`, `tls.key` | what the servers show |

A rotation of the CA can be resumed from it by anybody, since its phase is derived: one CA, none is
under way; two, and the leaf is of the older, the newer is announced; two, and the leaf is of the
newer, servers have switched and the older can retire.
"""

import binascii
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from certs.authority import KeyPair

CA_CERTIFICATES, CA_KEYS, CERTIFICATE, KEY = "ca.crt", "ca.key", "tls.crt", "tls.key"
_LARGEST = 1 << 16
_END_OF_KEY = b"-----END PRIVATE KEY-----\n"
_UNUSABLE = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)
"""What `cryptography` raises for keys and certificates that it cannot read."""


class BundleError(ValueError):
    """What the Secret holds is not a bundle."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """CAs that are trusted, and what servers show."""

    authorities: tuple[KeyPair, ...]
    """Oldest first."""
    leaf: KeyPair

    @property
    def signer(self) -> KeyPair | None:
        """The CA that signed the leaf; None when it is none of the bundle's."""
        return next((ca for ca in self.authorities if _signed(self.leaf, ca)), None)

    @property
    def trusted(self) -> bytes:
        """Certificates of all CAs [PEM]."""
        return b"".join(_certificate_pem(ca) for ca in self.authorities)


def write_bundle(bundle: Bundle) -> dict[str, str]:
    """Return the Secret's data, in base 64."""
    content = {
        CA_CERTIFICATES: bundle.trusted,
        CA_KEYS: b"".join(_key_pem(ca) for ca in bundle.authorities),
        CERTIFICATE: _certificate_pem(bundle.leaf),
        KEY: _key_pem(bundle.leaf),
    }
    return {key: b64encode(pem).decode() for key, pem in content.items()}


def read_bundle(data: Mapping[str, str]) -> Bundle:
    """Return what a Secret's data, in base 64, stands for.

    Raises:
        BundleError: It is not a bundle: the message says which key is wrong, and how.
    """
    authorities = _pairs(data, CA_CERTIFICATES, CA_KEYS)
    leaves = _pairs(data, CERTIFICATE, KEY)
    if len(leaves) != 1:
        raise BundleError(f"{CERTIFICATE} holds {len(leaves)} certificates: it must be one")
    return Bundle(authorities, leaves[0])


def trusts(bundle_pem: bytes, authority: KeyPair) -> bool:
    """Whether PEM text contains a CA's certificate."""
    try:
        return authority.certificate in x509.load_pem_x509_certificates(bundle_pem)
    except ValueError:
        return False


def _signed(leaf: KeyPair, authority: KeyPair) -> bool:
    try:
        leaf.certificate.verify_directly_issued_by(authority.certificate)
    except (*_UNUSABLE, InvalidSignature):
        return False
    return True


def _pairs(data: Mapping[str, str], certificates_key: str, keys_key: str) -> tuple[KeyPair, ...]:
    certificates = _certificates(_content(data, certificates_key), certificates_key)
    texts = [text + _END_OF_KEY for text in _content(data, keys_key).split(_END_OF_KEY)[:-1]]
    if len(texts) != len(certificates):
        raise BundleError(
            f"{certificates_key} holds {len(certificates)} certificates,"
            f" {keys_key} {len(texts)} keys: each needs its own"
        )
    keys = [_key(text, keys_key) for text in texts]
    for certificate, key in zip(certificates, keys, strict=True):
        if certificate.public_key() != key.public_key():
            raise BundleError(f"{keys_key} is not the key of {certificates_key}")
    return tuple(map(KeyPair, certificates, keys))


def _certificates(pem: bytes, name: str) -> list[x509.Certificate]:
    try:
        certificates = x509.load_pem_x509_certificates(pem)
        for certificate in certificates:
            # These are parsed when they are first read; afterwards nothing raises.
            certificate.public_key(), certificate.subject, certificate.extensions
    except _UNUSABLE as error:
        raise BundleError(f"{name} is not PEM certificates: {_line(error)}") from error
    return certificates


def _content(data: Mapping[str, str], key: str) -> bytes:
    text = data.get(key)
    if text is None:
        raise BundleError(f"{key} is missing")
    if len(text) > _LARGEST:
        raise BundleError(f"{key} is longer than {_LARGEST} bytes")
    try:
        return b64decode(text, validate=True)
    except binascii.Error as error:
        raise BundleError(f"{key} is not base 64: {error}") from error


def _key(pem: bytes, name: str) -> EllipticCurvePrivateKey:
    try:
        key = load_pem_private_key(pem, None)
    except _UNUSABLE as error:
        raise BundleError(f"{name} is not a PEM key: {_line(error)}") from error
    if not isinstance(key, EllipticCurvePrivateKey) or not isinstance(key.curve, SECP256R1):
        raise BundleError(f"{name} is not a key on the curve P-256")
    return key


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


def _certificate_pem(pair: KeyPair) -> bytes:
    return pair.certificate.public_bytes(Encoding.PEM)


def _key_pem(pair: KeyPair) -> bytes:
    return pair.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
