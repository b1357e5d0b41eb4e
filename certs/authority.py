"""Issue a self-signed CA, and serving certificates (leaves) signed by it, on the curve P-256."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import ip_address

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

BACKDATE = 3600
"""`notBefore` is this long before issuance, since the clocks of API servers differ [s]."""


@dataclass(frozen=True, slots=True)
class KeySource:
    """Source of unpredictable values."""

    new_key: Callable[[], EllipticCurvePrivateKey]
    """A new private key."""
    new_serial: Callable[[], int]
    """A new serial number: positive, of at most 20 bytes."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key."""

    certificate: x509.Certificate
    key: EllipticCurvePrivateKey

    @property
    def expiry(self) -> float:
        """End of validity, `notAfter` [s since 1970]."""
        return expiry(self.certificate)


def expiry(certificate: x509.Certificate) -> float:
    """Return the end of validity, `notAfter` [s since 1970]."""
    return certificate.not_valid_after_utc.timestamp()


def is_valid(certificate: x509.Certificate, now: float) -> bool:
    """Return whether the time now [s since 1970] is in the validity of a certificate."""
    return certificate.not_valid_before_utc.timestamp() <= now < expiry(certificate)


def renewal_time(certificate: x509.Certificate) -> float:
    """Return when the last third of a certificate's validity begins [s since 1970].

    The time by which `notBefore` precedes the issuance does not count.
    """
    issued = certificate.not_valid_before_utc.timestamp() + BACKDATE
    return issued + (expiry(certificate) - issued) * 2 / 3


def is_issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """Return whether a CA has signed a certificate."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def service_names(service: str, namespace: str) -> tuple[str, ...]:
    """Return the DNS names of a Service; API servers connect to the first."""
    return (
        f"{service}.{namespace}.svc",
        service,
        f"{service}.{namespace}",
        f"{service}.{namespace}.svc.cluster.local",
    )


def new_authority(now: float, duration: float, key_source: KeySource) -> KeyPair:
    """Return a new self-signed CA.

    Args:
        now: Time of issuance [s since 1970].
        duration: Validity [s].
        key_source: Source of its key and serial number.
    """
    key, serial = key_source.new_key(), key_source.new_serial()
    # A unique subject, so that every library can distinguish two CAs of one bundle.
    name = _name(f"Linkwise CA {serial:x}"[:40])
    builder = (
        _builder(key, serial, now, now + duration)
        .subject_name(name)
        .issuer_name(name)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(of_authority=True), critical=True)
    )
    return KeyPair(builder.sign(key, SHA256()), key)


def new_leaf(
    authority: KeyPair, names: Sequence[str], now: float, duration: float, key_source: KeySource
) -> KeyPair:
    """Return a new serving certificate, which expires no later than its CA.

    Args:
        authority: The CA that signs it.
        names: DNS names and IP addresses of the server; duplicates are dropped.
        now: Time of issuance [s since 1970].
        duration: Validity, shortened where the CA expires earlier [s].
        key_source: Source of its key and serial number.

    Raises:
        ValueError: The CA has expired.
    """
    if authority.expiry <= now:
        raise ValueError("a CA that has expired cannot sign")
    key = key_source.new_key()
    authority_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    alt_names = x509.SubjectAlternativeName(dict.fromkeys(map(general_name, names)))
    builder = (
        _builder(key, key_source.new_serial(), now, min(now + duration, authority.expiry))
        .subject_name(_name("Linkwise"))
        .issuer_name(authority.certificate.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(of_authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(alt_names, critical=False)
        .add_extension(authority_id, critical=False)
    )
    return KeyPair(builder.sign(authority.key, SHA256()), key)


def subject_alt_names(leaf: x509.Certificate) -> tuple[str, ...]:
    """Return the DNS names and IP addresses of a certificate, addresses last."""
    try:
        alt_names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    addresses = alt_names.get_values_for_type(x509.IPAddress)
    return (*alt_names.get_values_for_type(x509.DNSName), *map(str, addresses))


def general_name(name: str) -> x509.DNSName | x509.IPAddress:
    """Return a DNS name or an IP address as an entry of `subjectAltName`.

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
    key: EllipticCurvePrivateKey, serial: int, now: float, expiry: float
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(datetime.fromtimestamp(int(now) - BACKDATE, UTC))
        .not_valid_after(datetime.fromtimestamp(int(expiry), UTC))
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
