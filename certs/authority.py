"""Issuing: a CA of our own, and leaves for servers, on the curve P-256."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

BACKDATED = 3600
"""A certificate is valid from so long before it was made: clocks of API servers differ [s]."""


@dataclass(frozen=True, slots=True)
class KeySource:
    """Where what must not be foreseen comes from."""

    key: Callable[[], EllipticCurvePrivateKey]
    """A new private key."""
    serial: Callable[[], int]
    """A new serial number: positive, of at most 20 bytes."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key."""

    certificate: x509.Certificate
    key: EllipticCurvePrivateKey

    @property
    def issued(self) -> float:
        """When it was made [s since 1970]."""
        return self.certificate.not_valid_before_utc.timestamp() + BACKDATED

    @property
    def expiry(self) -> float:
        """When it ends [s since 1970]."""
        return self.certificate.not_valid_after_utc.timestamp()


def service_names(service: str, namespace: str) -> tuple[str, ...]:
    """Return the names of a Service; the first is the one that API servers ask for."""
    return (
        f"{service}.{namespace}.svc",
        service,
        f"{service}.{namespace}",
        f"{service}.{namespace}.svc.cluster.local",
    )


def new_authority(now: float, seconds: float, source: KeySource) -> KeyPair:
    """Return a new CA, which signs itself.

    Args:
        now: [s since 1970].
        seconds: How long it lasts [s].
        source: Of its key and serial number.
    """
    key, serial = source.key(), source.serial()
    # A name of its own, so that two CAs in one bundle are told apart by every library.
    name = _name(f"Linkwise CA {serial:x}"[:40])
    builder = (
        _builder(key, serial, now, now + seconds)
        .subject_name(name)
        .issuer_name(name)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(of_authority=True), critical=True)
    )
    return KeyPair(builder.sign(key, SHA256()), key)


def new_leaf(
    authority: KeyPair, names: Sequence[str], now: float, seconds: float, source: KeySource
) -> KeyPair:
    """Return a new serving certificate, which never outlives its CA.

    Args:
        authority: Who signs it.
        names: DNS names and IP addresses that the server is reached by; one may occur twice.
        now: [s since 1970].
        seconds: How long it lasts, if its CA lasts as long [s].
        source: Of its key and serial number.

    Raises:
        ValueError: The CA has ended.
    """
    if authority.expiry <= now:
        raise ValueError("a CA that has ended cannot sign")
    key = source.key()
    signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    reached_by = x509.SubjectAlternativeName(dict.fromkeys(map(general_name, names)))
    builder = (
        _builder(key, source.serial(), now, min(now + seconds, authority.expiry))
        .subject_name(_name("Linkwise"))
        .issuer_name(authority.certificate.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(of_authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(reached_by, critical=False)
        .add_extension(signer, critical=False)
    )
    return KeyPair(builder.sign(authority.key, SHA256()), key)


def names_of(leaf: x509.Certificate) -> tuple[str, ...]:
    """Return the DNS names and addresses that a certificate is for, addresses last."""
    try:
        found = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    addresses = found.get_values_for_type(x509.IPAddress)
    return (*found.get_values_for_type(x509.DNSName), *map(str, addresses))


def general_name(name: str) -> x509.DNSName | x509.IPAddress:
    """Return a DNS name or an IP address as certificates have it.

    Raises:
        ValueError: It is neither.
    """
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    key: EllipticCurvePrivateKey, serial: int, now: float, end: float
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(datetime.fromtimestamp(int(now) - BACKDATED, UTC))
        .not_valid_after(datetime.fromtimestamp(int(end), UTC))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, of_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not of_authority,
        key_cert_sign=of_authority,
        crl_sign=of_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
