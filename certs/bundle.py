"""The state of all certificates, as the Secret holds it.

| key | content, PEM |
|---|---|
| `ca.crt` | every trusted CA, oldest first: the `caBundle` of webhook configurations |
| `ca.key` | their keys, in the same order |
| `tls.crt`, `tls.key` | the serving certificate (leaf) |

Any replica can continue a rotation of the CA, since its phase follows from this state. One CA: no
rotation. Two CAs, the leaf signed by the older: the newer one is announced. Two CAs, the leaf
signed by the newer: servers have switched, and the older one can be removed.
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
_MAX_LENGTH = 1 << 16
_END_OF_KEY = b"-----END PRIVATE KEY-----\n"
_PARSE_ERRORS = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)
"""Errors of `cryptography` for keys and certificates that it cannot parse."""


class BundleError(ValueError):
    """The content of the Secret is not a bundle."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """Trusted CAs, and the serving certificate."""

    authorities: tuple[KeyPair, ...]
    """Oldest first."""
    leaf: KeyPair

    @property
    def signer(self) -> KeyPair | None:
        """The CA that signed the leaf; None where it is not in the bundle."""
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
    """Return the bundle in a Secret's data, in base 64.

    Raises:
        BundleError: It is not a bundle; the message names the key and the error.
    """
    authorities = _pairs(data, CA_CERTIFICATES, CA_KEYS)
    leaves = _pairs(data, CERTIFICATE, KEY)
    if len(leaves) != 1:
        raise BundleError(f"{CERTIFICATE} holds {len(leaves)} certificates: it must be one")
    return Bundle(authorities, leaves[0])


def trusts(bundle_pem: bytes, authority: KeyPair) -> bool:
    """Return whether PEM text contains a CA's certificate."""
    try:
        return authority.certificate in x509.load_pem_x509_certificates(bundle_pem)
    except ValueError:
        return False


def _signed(leaf: KeyPair, authority: KeyPair) -> bool:
    try:
        leaf.certificate.verify_directly_issued_by(authority.certificate)
    except (*_PARSE_ERRORS, InvalidSignature):
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
            # These are parsed on first access; a later access cannot fail.
            certificate.public_key(), certificate.subject, certificate.extensions
    except _PARSE_ERRORS as error:
        raise BundleError(f"{name} is not PEM certificates: {_one_line(error)}") from error
    return certificates


def _content(data: Mapping[str, str], key: str) -> bytes:
    text = data.get(key)
    if text is None:
        raise BundleError(f"{key} is missing")
    if len(text) > _MAX_LENGTH:
        raise BundleError(f"{key} is longer than {_MAX_LENGTH} bytes")
    try:
        return b64decode(text, validate=True)
    except binascii.Error as error:
        raise BundleError(f"{key} is not base 64: {error}") from error


def _key(pem: bytes, name: str) -> EllipticCurvePrivateKey:
    try:
        key = load_pem_private_key(pem, None)
    except _PARSE_ERRORS as error:
        raise BundleError(f"{name} is not a PEM key: {_one_line(error)}") from error
    if not isinstance(key, EllipticCurvePrivateKey) or not isinstance(key.curve, SECP256R1):
        raise BundleError(f"{name} is not a key on the curve P-256")
    return key


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _certificate_pem(pair: KeyPair) -> bytes:
    return pair.certificate.public_bytes(Encoding.PEM)


def _key_pem(pair: KeyPair) -> bytes:
    return pair.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
