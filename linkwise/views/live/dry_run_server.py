"""The dry-run API at the port of the webhook, for `check --server URL` with a token."""

import os
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp

from linkwise.cluster.keys import DRY_RUN_AUDIENCE, SERVER_NAME
from linkwise.manifest.value import InputError
from linkwise.runtime.kube.client import Kube
from linkwise.views.analysis.check_report import CheckReport
from linkwise.views.files.inputs import InputFiles
from linkwise.views.files.source import read_text, shown_name
from linkwise.views.live.dry_run_client import Endpoint, report_of, require_namespace

TIMEOUT = 30.0
"""For the answer to a file [s]."""

_MAKE_TOKEN = f"kubectl create token <serviceaccount> --audience {DRY_RUN_AUDIENCE}"
_FORWARD = "kubectl -n linkwise-system port-forward service/linkwise-webhook 8444"
_GET_CA = (
    "kubectl get mutatingwebhookconfiguration linkwise "
    "-o jsonpath='{.webhooks[0].clientConfig.caBundle}' | base64 -d"
)
_WRONG_NAME = frozenset({62, 64})
"""OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH."""
_EXPIRED = 10
_CLOSED = "the connection was closed without an answer"
_TOKEN = re.compile(r"[!-~]+")


@dataclass(frozen=True, slots=True)
class Server:
    """The webhook to call and the credentials, as named on the command line."""

    url: str
    token_file: str | None = None
    authority_file: str | None = None
    """Certificates of the CA; None: the system's."""
    name: str | None = None
    """The name in the server's certificate; None: the URL's host."""


def dry_run(server: Server, files: InputFiles) -> tuple[CheckReport, tuple[str, ...]]:
    """Return the report of a webhook for files, as `report_of` does."""
    return report_of(_endpoint(server, files.namespace), files)


@asynccontextmanager
async def _endpoint(server: Server, namespace: str) -> AsyncIterator[Endpoint]:
    require_namespace(namespace)
    name = server.name or _host(server.url)
    token = _token(server.token_file)
    try:
        client = Kube(
            server.url,
            token=token,
            ca_file=_authority(server.authority_file),
            server_name=name,
            timeout=TIMEOUT,
        )
    except (ssl.SSLError, ValueError):
        raise InputError(
            f"{shown_name(server.authority_file or '')}: there is no certificate in it. Write "
            f"one: {_GET_CA}."
        ) from None
    async with client as kube:
        yield Endpoint(
            kube,
            kube.server,
            namespace,
            partial(_reason, name=name),
            rejected=f"it rejects the token in {server.token_file}. Make a new one: {_MAKE_TOKEN}.",
            unexpected="Name the address of port 8444 of linkwise-webhook, and use the linkwise "
            "of its version.",
        )


def _host(url: str) -> str:
    try:
        parts = urlsplit(url)
        beyond = parts.path.strip("/") or parts.query
        if parts.scheme == "https" and parts.hostname and not beyond and parts.port != 0:
            return parts.hostname
    except ValueError:
        pass
    raise InputError(
        f"--server {url}: write an address such as https://127.0.0.1:8444, where `{_FORWARD}` "
        "puts it."
    )


def _token(file: str | None) -> str:
    if file is None:
        raise InputError(
            f"--server needs a token: make one with `{_MAKE_TOKEN}`, and name its file with "
            "--token-file."
        )
    token = read_text(file).strip()
    if not _TOKEN.fullmatch(token):
        raise InputError(f"{shown_name(file)}: there is no token in it. Make one: {_MAKE_TOKEN}.")
    return token


def _authority(file: str | None) -> Path | None:
    """Return the file of the CA's certificates, which can be read."""
    if file is None:
        return None
    read_text(file)
    return Path(file)


def _reason(error: BaseException, name: str) -> str:
    """Return why there is no response, and what to do."""
    match error:
        case aiohttp.ClientConnectorCertificateError() if isinstance(
            inner := error.certificate_error, ssl.SSLCertVerificationError
        ):
            return _distrust(inner, name)
        case aiohttp.ClientConnectorSSLError():
            reason = getattr(error.os_error, "reason", None) or error.os_error
            return f"this is no TLS port ({reason}). Name port 8444 of linkwise-webhook."
        case TimeoutError():
            return f"no answer in {TIMEOUT:g} s. See whether linkwise-webhook is ready."
        case aiohttp.ClientConnectorDNSError():
            return f"there is no host {name}. Name one that is reached from here: {_FORWARD}."
        case OSError() | aiohttp.ServerDisconnectedError():
            number = error.errno if isinstance(error, OSError) else None
            reason = os.strerror(number).lower() if number else _CLOSED
            return f"{reason}. See whether it can be reached from here: {_FORWARD}."
        case _:
            return "it answers, but not in HTTP. Name port 8444 of linkwise-webhook."


def _distrust(error: ssl.SSLCertVerificationError, name: str) -> str:
    if error.verify_code in _WRONG_NAME:
        return (
            f"its certificate is not for {name}. Name its server, such as "
            f"--tls-server-name {SERVER_NAME}."
        )
    if error.verify_code == _EXPIRED:
        return "its certificate has expired. See whether linkwise-certs is ready."
    return (
        f"its certificate is not trusted ({error.verify_message}). Name the CA that signed it with "
        f"--certificate-authority: {_GET_CA}."
    )
