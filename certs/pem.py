"""Read and write certificates and keys in the data of Secrets: PEM, in base 64."""

import binascii
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from certs.authority import KeyPair

_MAX_LENGTH = 1 << 16
_PARSE_ERRORS = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)
"""Errors of `cryptography` for keys and certificates that it cannot parse."""


class ContentError(ValueError):
    """Data that is not what its key must hold. The text is one line that names the key."""


def encode(contents: Mapping[str, bytes]) -> dict[str, str]:
    """Return the data of a Secret with these contents."""
    return {key: b64encode(content).decode() for key, content in contents.items()}


def content(data: Mapping[str, str], key: str) -> bytes:
    """Return the content of a key in the data of a Secret.

    Raises:
        ContentError: It is missing, too long, or not base 64.
    """
    text = data.get(key)
    if text is None:
        raise ContentError(f"{key} is missing")
    if len(text) > _MAX_LENGTH:
        raise ContentError(f"{key} is longer than {_MAX_LENGTH} bytes")
    try:
        return b64decode(text, validate=True)
    except binascii.Error as error:
        raise ContentError(f"{key} is not base 64: {error}") from error


def read_certificates(pem: bytes, name: str) -> tuple[x509.Certificate, ...]:
    """Return the certificates of PEM text; at least one.

    Args:
        pem: The text.
        name: Its name in an error.

    Raises:
        ContentError: It is not PEM certificates.
    """
    if len(pem) > _MAX_LENGTH:
        raise ContentError(f"{name} is longer than {_MAX_LENGTH} bytes")
    try:
        certificates = x509.load_pem_x509_certificates(pem)
        for certificate in certificates:
            # These are parsed on first access; a later access cannot fail.
            certificate.public_key(), certificate.subject, certificate.extensions
    except _PARSE_ERRORS as error:
        raise ContentError(f"{name} is not PEM certificates: {_one_line(error)}") from error
    return tuple(certificates)


def read_key(pem: bytes, name: str, certificate: x509.Certificate) -> PrivateKeyTypes:
    """Return the private key of a certificate, from PEM text.

    Raises:
        ContentError: It is not a PEM key, or the key of another certificate.
    """
    try:
        key = load_pem_private_key(pem, None)
    except _PARSE_ERRORS as error:
        raise ContentError(f"{name} is not a PEM key: {_one_line(error)}") from error
    if key.public_key() != certificate.public_key():
        raise ContentError(f"{name} is not the key of its certificate")
    return key


def read_pair(data: Mapping[str, str], certificate_key: str, key_key: str) -> KeyPair:
    """Return a certificate and its key on the curve P-256 from the data of a Secret.

    Raises:
        ContentError: There is no such pair.
    """
    certificates = read_certificates(content(data, certificate_key), certificate_key)
    if len(certificates) != 1:
        raise ContentError(
            f"{certificate_key} has {len(certificates)} certificates: it must be one"
        )
    return key_pair(certificates[0], content(data, key_key), key_key)


def key_pair(certificate: x509.Certificate, pem: bytes, name: str) -> KeyPair:
    """Return a certificate and its key on the curve P-256, from PEM text.

    Raises:
        ContentError: It is not a PEM key on this curve, or the key of another certificate.
    """
    key = read_key(pem, name, certificate)
    if not isinstance(key, EllipticCurvePrivateKey) or not isinstance(key.curve, SECP256R1):
        raise ContentError(f"{name} is not a key on the curve P-256")
    return KeyPair(certificate, key)


def certificates_pem(certificates: Iterable[x509.Certificate]) -> bytes:
    """Return certificates as PEM text."""
    return b"".join(certificate.public_bytes(Encoding.PEM) for certificate in certificates)


def key_pem(pair: KeyPair) -> bytes:
    """Return a private key as PEM text."""
    return pair.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
