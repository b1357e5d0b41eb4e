"""Take over the CA of version 0.1, which stored it with the only leaf in one Secret.

That Secret is read once and never written: during an upgrade, replicas of version 0.1 still use it,
and after a rollback they find it unchanged.

| key | content, PEM |
|---|---|
| `ca.crt` | every trusted CA, oldest first |
| `ca.key` | their keys, in the same order |
| `tls.crt` | the leaf |
"""

from collections.abc import Mapping

from certs.authorities import Authorities
from certs.authority import KeyPair, is_issued_by
from certs.pem import ContentError, content, key_pair, read_certificates

_END_OF_KEY = b"-----END PRIVATE KEY-----\n"


def adopt(data: Mapping[str, str]) -> Authorities | None:
    """Return the CAs of version 0.1: the signer of the leaf is the current one.

    Args:
        data: Of its Secret, in base 64; empty where there is none.
    """
    try:
        pairs = _pairs(data)
        leaf = read_certificates(content(data, "tls.crt"), "tls.crt")[0]
    except ContentError:
        return None
    signer = next((pair for pair in pairs if is_issued_by(leaf, pair.certificate)), None)
    if signer is None:
        return None
    # Version 0.1 has used a newer CA as soon as it existed, so all others are older.
    previous = tuple(pair.certificate for pair in pairs if pair is not signer)
    return Authorities(signer, previous=previous)


def _pairs(data: Mapping[str, str]) -> list[KeyPair]:
    certificates = read_certificates(content(data, "ca.crt"), "ca.crt")
    texts = [text + _END_OF_KEY for text in content(data, "ca.key").split(_END_OF_KEY)[:-1]]
    if len(texts) != len(certificates):
        raise ContentError("ca.key does not have a key for each certificate of ca.crt")
    pairs = zip(certificates, texts, strict=True)
    return [key_pair(certificate, text, "ca.key") for certificate, text in pairs]
