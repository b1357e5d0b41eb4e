import asyncio
import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
)
from structlog.testing import capture_logs
from support.certificates import a_ca, a_leaf
from support.waiting import until

from linkwise.runtime.http.server import serve
from linkwise.runtime.http.tls import (
    CertificateError,
    ServingCertificate,
    served_certificate,
    validate_key_pair,
)
from linkwise.runtime.http.types import HttpResponse, Route

CA = a_ca()
LEAF = a_leaf(CA)
ROUTES = [Route("GET", "/", lambda _call: HttpResponse(b"{}"))]


def served(certificate):
    return serve(ROUTES, host="127.0.0.1", port=0, context=certificate.context)


async def test_certificate_of_the_files_is_served(tmp_path):
    certificate = ServingCertificate(*LEAF.write(tmp_path))

    assert certificate.expiry == LEAF.certificate.not_valid_after_utc.timestamp()
    assert certificate.error is None
    async with served(certificate) as server:
        assert await served_certificate("127.0.0.1", server.port) == LEAF.der
        assert await certificate.problem("127.0.0.1", server.port) is None


def test_files_that_did_not_change_are_not_loaded_again(tmp_path):
    with capture_logs() as logs:
        certificate = ServingCertificate(*LEAF.write(tmp_path))
        certificate.reload()

    assert [line["event"] for line in logs] == ["Loaded certificate"]


def test_invalid_pair_is_logged_once(tmp_path):
    with capture_logs() as logs:
        certificate = ServingCertificate(tmp_path / "none", tmp_path / "none")
        certificate.reload()

    assert [line["event"] for line in logs] == ["Could not load certificate"]


async def test_a_changed_certificate_is_served_to_new_connections_and_open_ones_stay(tmp_path):
    certificate = ServingCertificate(*LEAF.write(tmp_path))
    trust = ssl.create_default_context(cadata=CA.cert_pem.decode())
    next_leaf = a_leaf(CA, days=2)

    async with served(certificate) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=trust)
        watch = asyncio.create_task(certificate.reload_when_changed(every=0.005))
        next_leaf.write(tmp_path)
        await until(lambda: certificate.der != LEAF.der)
        watch.cancel()
        assert await served_certificate("127.0.0.1", server.port) == next_leaf.der
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()

    assert certificate.expiry == next_leaf.certificate.not_valid_after_utc.timestamp()
    assert certificate.der == next_leaf.der


async def test_two_hundred_handshakes_during_twenty_rotations_all_succeed(tmp_path):
    certificate = ServingCertificate(*LEAF.write(tmp_path))
    trust = ssl.create_default_context(cadata=CA.cert_pem.decode())
    shown = set()

    async with served(certificate) as server:

        async def connect():
            _, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=trust)
            shown.add(writer.get_extra_info("ssl_object").getpeercert(binary_form=True))
            writer.transport.abort()

        for _ in range(20):
            a_leaf(CA).write(tmp_path)
            certificate.reload()
            await asyncio.gather(*(connect() for _ in range(10)))

    assert len(shown) == 20


@pytest.mark.parametrize(
    ("cert", "key", "says"),
    [
        (LEAF.cert_pem, a_leaf(CA).key_pem, "mismatch"),
        (b"", LEAF.key_pem, "cannot be served"),
        (LEAF.cert_pem, b"", "cannot be served"),
        (b"-----BEGIN CERTIFICATE-----\nno\n", LEAF.key_pem, "cannot be served"),
        (CA.cert_pem.replace(b"A", b"B"), CA.key_pem, "cannot be served"),
    ],
    ids=["another's key", "no certificate", "no key", "cut off", "garbled"],
)
def test_invalid_pair_keeps_the_last_valid_one(tmp_path, cert, key, says):
    files = LEAF.write(tmp_path)
    certificate = ServingCertificate(*files)

    files[0].write_bytes(cert)
    files[1].write_bytes(key)
    certificate.reload()

    assert says in certificate.error
    assert certificate.der == LEAF.der

    LEAF.write(tmp_path)
    certificate.reload()
    assert certificate.error is None


def test_deleted_files_keep_the_last_valid_pair(tmp_path):
    files = LEAF.write(tmp_path)
    certificate = ServingCertificate(*files)

    files[1].unlink()
    certificate.reload()

    assert certificate.error == f"{files[1]}: No such file or directory"
    assert certificate.der == LEAF.der
    LEAF.write(tmp_path)
    certificate.reload()
    assert certificate.error is None


async def test_before_there_is_a_certificate_handshakes_fail_and_it_says_why(tmp_path):
    certificate = ServingCertificate(tmp_path / "tls.crt", tmp_path / "tls.key")

    async with served(certificate) as server:
        assert certificate.expiry is None
        assert "tls.crt: No such file" in await certificate.problem("127.0.0.1", server.port)
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await served_certificate("127.0.0.1", server.port)
        LEAF.write(tmp_path)
        certificate.reload()
        assert await served_certificate("127.0.0.1", server.port) == LEAF.der


async def test_a_listener_that_is_gone_or_shows_another_certificate_is_a_problem(tmp_path):
    (tmp_path / "other").mkdir()
    other = ServingCertificate(*a_leaf(CA).write(tmp_path / "other"))
    certificate = ServingCertificate(*LEAF.write(tmp_path))

    async with served(other) as server:
        port = server.port
        assert await certificate.problem("127.0.0.1", port) == "another certificate is served"

    assert f"no TLS at 127.0.0.1:{port}: " in await certificate.problem("127.0.0.1", port)


def test_a_key_of_another_type_is_not_loaded_beside_the_first(tmp_path):
    certificate = ServingCertificate(*LEAF.write(tmp_path))

    a_leaf(CA, elliptic=False).write(tmp_path)
    certificate.reload()

    assert "another type: restart the process" in certificate.error
    assert certificate.der == LEAF.der


def test_an_rsa_pair_is_served_by_a_process_that_starts_with_it(tmp_path):
    pair = a_leaf(CA, elliptic=False)

    assert ServingCertificate(*pair.write(tmp_path)).der == pair.der


def test_expired_certificate_is_loaded_with_its_expiry(tmp_path):
    pair = a_leaf(CA, days=-2)

    certificate = ServingCertificate(*pair.write(tmp_path))

    assert certificate.expiry == pair.certificate.not_valid_after_utc.timestamp()


def test_an_encrypted_key_is_refused_without_asking_for_a_password():
    locked = LEAF.key.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
    )

    with pytest.raises(CertificateError, match="encrypted"):
        validate_key_pair(LEAF.cert_pem + locked)


@pytest.mark.parametrize(
    ("version", "agrees"),
    [
        (ssl.TLSVersion.TLSv1_1, False),
        (ssl.TLSVersion.TLSv1_2, True),
        (ssl.TLSVersion.TLSv1_3, True),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_tls_begins_at_1_2(tmp_path, version, agrees):
    certificate = ServingCertificate(*LEAF.write(tmp_path))
    client = ssl.create_default_context(cadata=CA.cert_pem.decode())
    client.set_ciphers("DEFAULT@SECLEVEL=0")
    client.minimum_version = client.maximum_version = version

    async with served(certificate) as server:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=client)
            writer.transport.abort()
            assert agrees
        except (ssl.SSLError, OSError):
            assert not agrees


async def test_http_1_1_is_all_that_is_offered_and_no_tickets(tmp_path):
    certificate = ServingCertificate(*LEAF.write(tmp_path))
    client = ssl.create_default_context(cadata=CA.cert_pem.decode())
    client.set_alpn_protocols(["h2", "http/1.1"])

    async with served(certificate) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=client)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readline()
        shown = writer.get_extra_info("ssl_object")
        assert shown.selected_alpn_protocol() == "http/1.1"
        assert not shown.session.has_ticket
        writer.transport.abort()

    assert certificate.context.num_tickets == 0


@pytest.fixture
def clients_ca(tmp_path):
    """Another CA than the server's, in a file."""
    ca = a_ca("clients")
    (tmp_path / "clients.crt").write_bytes(ca.cert_pem)
    return ca


@pytest.mark.parametrize("shows", [None, "ours", "theirs", "for servers"])
async def test_only_clients_of_the_ca_that_is_named_get_through(tmp_path, clients_ca, shows):
    certificate = ServingCertificate(*LEAF.write(tmp_path), client_ca_file=tmp_path / "clients.crt")
    client = ssl.create_default_context(cadata=CA.cert_pem.decode())
    pairs = {
        "ours": a_leaf(clients_ca, usage="CLIENT_AUTH"),
        "theirs": a_leaf(a_ca("others"), usage="CLIENT_AUTH"),
        "for servers": a_leaf(clients_ca),
    }
    if shows:
        folder = tmp_path / "client"
        folder.mkdir()
        client.load_cert_chain(*pairs[shows].write(folder))

    async with served(certificate) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=client)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        try:
            message = await reader.readline()
        except OSError:
            message = b""
        writer.transport.abort()
        # The process asks itself without a certificate, and sees its own all the same.
        assert await certificate.problem("127.0.0.1", server.port) is None

    assert message.startswith(b"HTTP/1.1 200") == (shows == "ours")


def test_no_descriptor_with_a_key_is_left_open():
    def in_memory():
        return [one for one in Path("/proc/self/fd").iterdir() if "memfd" in _target(one)]

    before = len(in_memory())

    validate_key_pair(LEAF.cert_pem + LEAF.key_pem)

    assert len(in_memory()) == before


def _target(link):
    try:
        return str(link.readlink())
    except FileNotFoundError:  # The one that the folder itself was read with.
        return ""
