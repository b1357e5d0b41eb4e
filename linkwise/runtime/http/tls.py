"""Serve a certificate from files that change, by one SSLContext for new handshakes."""

import asyncio
import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import structlog

_LARGEST = 1 << 20
_NO_CHECK_TIME = 0x200000
"""OpenSSL's X509_V_FLAG_NO_CHECK_TIME: an expired certificate is valid, a broken one is not."""

_log = structlog.get_logger()


class CertificateError(ValueError):
    """A certificate and key that cannot be served."""


class ServingCertificate:
    """A certificate and key in two files, and the context that serves them.

    The context stays the same while the process runs. Open connections keep their certificate, new
    ones use the last that was loaded. Until one is loaded, handshakes fail.
    """

    def __init__(
        self, cert_file: Path, key_file: Path, *, client_ca_file: Path | None = None
    ) -> None:
        """Load the files, if their content can be served.

        Args:
            cert_file: Leaf and chain.
            key_file: The leaf's key.
            client_ca_file: CAs of clients; the handshake fails for clients without a certificate
                from one of them. None: no client certificate is required.

        Raises:
            OSError: The CAs cannot be read.
        """
        self._files = (cert_file, key_file)
        self._digest = b""
        self.context = _server_context()
        if client_ca_file is not None:
            self.context.load_verify_locations(client_ca_file)
            self.context.verify_mode = ssl.CERT_REQUIRED
        self.expiry: float | None = None
        """Expiry of the certificate that is served [s since 1970]; None before one was loaded."""
        self.der = b""
        """The certificate that is served [DER]; empty before one was loaded."""
        self.error: str | None = None
        """Why the present content of the files is not served; None when it is."""
        self.reload()

    def reload(self) -> None:
        """Load the files again; keep the loaded certificate if they cannot be served.

        Source: measured with asyncio and uvloop: `load_cert_chain` on a context in use affects the
        next handshake and no open connection.
        """
        try:
            pem = b"\n".join(_content(path) for path in self._files)
        except OSError as error:
            self._refuse(b"", f"{error.filename}: {error.strerror}")
            return
        digest = sha256(pem).digest()
        if digest == self._digest:
            return
        try:
            der, expiry = validate_key_pair(pem)
            self._take(pem, der)
        except CertificateError as error:
            self._refuse(digest, str(error))
            return
        self._digest, self.der, self.expiry, self.error = digest, der, expiry, None
        _log.info("Loaded certificate", expiry=int(expiry), path=str(self._files[0]))

    async def reload_when_changed(self, *, every: float = 5) -> None:
        """Poll the files until cancelled; mounted Secrets send no reliable events.

        Args:
            every: Time between two polls [s].
        """
        while True:
            await asyncio.sleep(every)
            self.reload()

    async def problem(self, host: str, port: int) -> str | None:
        """Return why a listener of this process does not serve this certificate; None if it does.

        The check connects to the port, as clients do.
        """
        if not self.der:
            return self.error
        try:
            served = await served_certificate(host, port)
        except OSError as error:
            return f"no TLS at {host}:{port}: {str(error) or type(error).__name__}"
        return None if served == self.der else "another certificate is served"

    def _take(self, pem: bytes, der: bytes) -> None:
        # OpenSSL keeps one certificate for each type of key: one of another type would be served
        # beside the old one, and not replace it.
        if self.der and _is_elliptic(self.der) != _is_elliptic(der):
            raise CertificateError("the key is of another type: restart the process to serve it")
        with _in_memory(pem) as path:
            self.context.load_cert_chain(path, password=_no_password)

    def _refuse(self, digest: bytes, error: str) -> None:
        if error != self.error:
            _log.error("Could not load certificate", err=error, path=str(self._files[0]))
        self._digest = digest
        self.error = error


def validate_key_pair(pem: bytes) -> tuple[bytes, float]:
    """Return the leaf [DER] of a certificate chain and key, and its expiry [s since 1970].

    A handshake in memory, with a client that trusts only this leaf, proves that both match and can
    be served.

    Args:
        pem: Leaf, then its chain, and the leaf's key.

    Raises:
        CertificateError: They cannot be served.
    """
    server, client = _server_context(), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | _NO_CHECK_TIME
    try:
        with _in_memory(pem) as path:
            server.load_cert_chain(path, password=_no_password)
            client.load_verify_locations(cafile=path)
        return _handshake(server, client)
    except (ssl.SSLError, ValueError) as error:
        raise CertificateError(f"certificate and key cannot be served: {error}") from error


async def served_certificate(host: str, port: int, *, within: float = 2) -> bytes:
    """Return the certificate [DER] that a listener serves, without verifying it.

    Raises:
        OSError: There is no listener, or no TLS, or no handshake within that time [s].
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    async with asyncio.timeout(within):
        _, writer = await asyncio.open_connection(host, port, ssl=context)
    try:
        certificate: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return certificate
    finally:
        writer.transport.abort()


def _server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    # API servers do not resume sessions, so tickets would be of no use.
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    return context


def _handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> tuple[bytes, float]:
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client_side = client.wrap_bio(to_client, to_server)
    server_side = server.wrap_bio(to_server, to_client, server_side=True)
    for side in (client_side, server_side, client_side, server_side):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    leaf = client_side.getpeercert() or {}
    return client_side.getpeercert(binary_form=True) or b"", ssl.cert_time_to_seconds(
        str(leaf.get("notAfter"))
    )


def _is_elliptic(der: bytes) -> bool:
    """Return whether it is an EC key: its DER contains id-ecPublicKey, RFC 5480 §2.1.1."""
    return bytes.fromhex("06072a8648ce3d0201") in der


def _content(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_LARGEST)


@contextmanager
def _in_memory(pem: bytes) -> Iterator[str]:
    """Yield the path of a file in memory: OpenSSL reads files only."""
    descriptor = os.memfd_create("certificate")
    try:
        os.write(descriptor, pem)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _no_password() -> bytes:
    """Refuse an encrypted key; without this, OpenSSL would prompt on the terminal."""
    raise CertificateError("the key is encrypted")
