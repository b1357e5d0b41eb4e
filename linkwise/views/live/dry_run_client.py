"""Client of the webhook's dry-run API, for `check --server`."""

import asyncio
import os
import re
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit

import aiohttp

from linkwise.admission.dry_run.dryrun import BODY_NAME, PATH
from linkwise.cluster.keys import DRY_RUN_AUDIENCE, SERVER_NAME
from linkwise.manifest.value import InputError
from linkwise.manifest.workload import NO_PODS
from linkwise.runtime.kube.client import ApiError, Kube, KubeError, Unreachable
from linkwise.views.analysis.check_report import CheckReport
from linkwise.views.files.inputs import InputFiles
from linkwise.views.files.source import read_text, shown_name
from linkwise.views.live.dry_run_response import DryRun, placed
from linkwise.views.output.progress import with_progress

TIMEOUT = 30.0
"""For the answer to a file [s]."""
MAX_BYTES = 64 * 1024 * 1024
"""Largest response that is read; one for 100 templates is about 1 MB."""

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
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


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
    """Return the report of a cluster's webhook for files; each file is one request.

    Also return why files could not be read, here or there: a line each.

    Raises:
        InputError: A request fails; one line that says what to do.
    """
    _refuse_other_files(files)
    if not _NAMESPACE.fullmatch(files.namespace):
        raise InputError(f"--namespace {files.namespace}: no namespace can have this name.")
    reports, unreadable = asyncio.run(_post_files(_DryRunClient(server), files))
    entries = tuple(entry for report in reports for entry in report.items)
    texts_once = dict.fromkeys(text for report in reports for text in report.warnings)
    warnings = [text for text in texts_once if text != NO_PODS]
    if not entries and not unreadable:
        warnings.append(NO_PODS)
    report = CheckReport(
        items=entries,
        unjudged=tuple(unjudged for report in reports for unjudged in report.unjudged),
        warnings=tuple(warnings),
        notes=tuple(dict.fromkeys(note for report in reports for note in report.notes)),
    )
    return report, tuple(unreadable)


async def _post_files(
    client: "_DryRunClient", files: InputFiles
) -> tuple[list[CheckReport], list[str]]:
    """Return a report for each file, and why the other files cannot be read."""
    reports: list[CheckReport] = []
    unreadable: list[str] = []
    async with client.kube:
        for name in with_progress(files.manifests, "Checking files"):
            try:
                body = read_text(name).encode()
            except InputError as error:
                unreadable.append(str(error))
                continue
            try:
                reports.append(await client.post(shown_name(name), body, files.namespace))
            except _FileRefused as error:
                unreadable.append(str(error))
    return reports, unreadable


def _refuse_other_files(files: InputFiles) -> None:
    for option, file in (
        ("--policy", files.policy),
        ("--profile", files.profile),
        ("--cluster", files.cluster),
    ):
        if file is not None:
            raise InputError(
                f"{option} cannot be given with --server, which has its own. Leave one of them out."
            )


class _FileRefused(InputError):  # noqa: N818 - an InputError about one file; others may follow.
    """The server cannot read a file."""


class _DryRunClient:
    """A client of the dry-run API, which maps errors to messages."""

    def __init__(self, server: Server) -> None:
        self._url = server.url.rstrip("/")
        self._token_file = server.token_file
        self._name = server.name or _host(server.url)
        token = _token(server.token_file)
        try:
            self.kube = Kube(
                self._url,
                token=token,
                ca_file=_authority(server.authority_file),
                server_name=self._name,
                timeout=TIMEOUT,
            )
        except (ssl.SSLError, ValueError):
            raise InputError(
                f"{shown_name(server.authority_file or '')}: there is no certificate in it. Write "
                f"one: {_GET_CA}."
            ) from None

    async def post(self, file: str, body: bytes, namespace: str) -> CheckReport:
        """Return the report for one file, with line numbers in that file.

        Raises:
            _FileRefused: The server cannot read this file.
            InputError: The request fails.
        """
        try:
            response = await self.kube.post(
                PATH,
                body,
                DryRun,
                # JSON files are valid YAML, too.
                content_type="application/yaml",
                params={"namespace": namespace},
                max_bytes=MAX_BYTES,
            )
        except ApiError as error:
            self._refuse(error.status, error.message.partition("\n")[0], file)
        except Unreachable as error:
            self._fail(_reason(error.__cause__ or error, self._name))
        except KubeError:
            self._fail_unexpected("with something else")
        return response.report(file)

    def _refuse(self, status: int, reason: str, file: str) -> NoReturn:
        match status:
            case 400 if reason.startswith(f"{BODY_NAME}:"):
                raise _FileRefused(placed(reason, file)) from None
            case 400:
                self._fail(f"it cannot read {file}: {reason}. Correct the file.")
            case 401:
                self._fail(
                    f"it rejects the token in {self._token_file}. Make a new one: {_MAKE_TOKEN}."
                )
            case 403:
                self._fail(f"{reason}. Ask for a role that may, or name another namespace.")
            case 413:
                self._fail(f"{file} is too much for one question: {reason}. Split it.")
            case 503:
                self._fail(f"{reason}. Try again in a moment.")
            case _:
                self._fail_unexpected(f"with status {status}")

    def _fail_unexpected(self, response: str) -> NoReturn:
        self._fail(
            f"it answers {response}, not as this version's dry-run API does. Name the address of "
            "port 8444 of linkwise-webhook, and use the linkwise of its version."
        )

    def _fail(self, message: str) -> NoReturn:
        raise InputError(f"{self._url}: {message}") from None


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
