"""Certificates for tests: P-256 as in production, RSA where it must be refused."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from linkwise.cluster.keys import SCORER_SERVER_NAME, SERVER_NAME

UNKNOWN_KEY = b"-----BEGIN PRIVATE KEY-----\nMAwCAQAwBQYDKgMEBAA=\n-----END PRIVATE KEY-----\n"
"""A key of an unknown algorithm, with the object identifier 1.2.3.4."""

_DAY = timedelta(days=1)
_NAMES = ("localhost", SERVER_NAME, SCORER_SERVER_NAME)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

    @property
    def cert_pem(self):
        return self.certificate.public_bytes(Encoding.PEM)

    @property
    def key_pem(self):
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    @property
    def der(self):
        return self.certificate.public_bytes(Encoding.DER)

    def write(self, folder):
        """Write `tls.crt` and `tls.key`, as in a mounted Secret, and return their paths."""
        cert, key = folder / "tls.crt", folder / "tls.key"
        cert.write_bytes(self.cert_pem)
        key.write_bytes(self.key_pem)
        return cert, key


def a_ca(name="test CA", *, days=10, elliptic=True, names=()):
    key = _key(elliptic=elliptic)
    subject = _name(name)
    builder = (
        _builder(subject, subject, key, days=days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    if names:
        alt_names = x509.SubjectAlternativeName(map(x509.DNSName, names))
        builder = builder.add_extension(alt_names, critical=False)
    return KeyPair(builder.sign(key, SHA256()), key)


def a_leaf(ca, *, name="linkwise", days=1, elliptic=True, usage="SERVER_AUTH", names=_NAMES):
    """Return a leaf for 127.0.0.1 and our servers; with negative days it is expired."""
    key = _key(elliptic=elliptic)
    address = x509.IPAddress(ip_address("127.0.0.1"))
    alt_names = [address, *map(x509.DNSName, names)]
    certificate = (
        _builder(_name(name), ca.certificate.subject, key, days=days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca.key.public_key()), critical=False
        )
        .add_extension(x509.SubjectAlternativeName(alt_names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([getattr(ExtendedKeyUsageOID, usage)]), critical=False)
        .sign(ca.key, SHA256())
    )
    return KeyPair(certificate, key)


def _key(*, elliptic):
    if elliptic:
        return ec.generate_private_key(ec.SECP256R1())
    return rsa.generate_private_key(65537, 2048)


def _name(name):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(subject, issuer, key, *, days):
    now = datetime.now(UTC)  # noqa: TID251 - OpenSSL reads the real clock, too.
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 30 * _DAY)
        .not_valid_after(now + days * _DAY)
    )
