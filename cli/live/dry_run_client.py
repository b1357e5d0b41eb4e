"""`check --server`: the same report, from the webhook of a cluster, by its dry-run API."""

import re
import socket
import ssl
from contextlib import closing, suppress
from dataclasses import dataclass
from http.client import HTTPException, HTTPSConnection
from typing import NoReturn
from urllib.parse import urlencode, urlsplit

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cli.analysis.report import CheckReport, Entry
from cli.files.inputs import Given
from cli.files.source import read_text, shown_name
from cluster.keys import DRY_RUN_AUDIENCE, SERVER_NAME
from manifest.value import InputError
from manifest.workload import NO_PODS, Unjudged
from webhook.dryrun import BODY_NAME, PATH

TIMEOUT = 30
"""For every step of a question [s]."""
MOST_BYTES = 64 * 1024 * 1024
"""Largest answer that is read; one for 100 templates is about 1 MB."""

_MAKE_TOKEN = f"kubectl create token <serviceaccount> --audience {DRY_RUN_AUDIENCE}"
_FORWARD = "kubectl -n linkwise-system port-forward service/linkwise-webhook 8444"
_GET_CA = (
    "kubectl get mutatingwebhookconfiguration linkwise "
    "-o jsonpath='{.webhooks[0].clientConfig.caBundle}' | base64 -d"
)
_WRONG_NAME = frozenset({62, 64})
"""OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH."""
_EXPIRED = 10
_TOKEN = re.compile(r"[!-~]+")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Server:
    """Whom to ask and how, as named on the command line."""

    url: str
    token_file: str | None = None
    authority_file: str | None = None
    """Of the CA that signs its certificate; the system's authorities when None."""
    name: str | None = None
    """Whom its certificate must be for; the URL's host when None."""


class PolicyVersion(Struct, frozen=True):
    """Which policy decided."""

    generation: int
    digest: str


class DryRun(Struct, frozen=True):
    """The answer of the dry-run API."""

    pods: tuple[Entry, ...]
    """One for each pod template."""
    warnings: tuple[str, ...]
    """What was passed over or guessed."""
    policy: PolicyVersion | None = None
    """What decided."""
    notes: tuple[str, ...] = ()
    """What is not known, which is no fault of what was sent."""
    unjudged: tuple[Unjudged, ...] = ()
    """What may make pods, and was not judged. Also among `warnings`."""


class _Connection(HTTPSConnection):
    """A connection to one address whose certificate is for another name."""

    def __init__(self, address: tuple[str, int], name: str, context: ssl.SSLContext) -> None:
        super().__init__(name, address[1], timeout=TIMEOUT)
        self._address = address
        self._trusting = context

    def connect(self) -> None:
        """Connect; called for the first request."""
        plain = socket.create_connection(self._address, TIMEOUT)
        try:
            self.sock = self._trusting.wrap_socket(plain, server_hostname=self.host)
        except BaseException:
            plain.close()
            raise


def asked(server: Server, given: Given) -> CheckReport:
    """Return what a cluster's webhook says of files: one question each.

    Raises:
        InputError: It cannot be asked, or refuses to answer; one line that says what to do.
    """
    _refuse_files_beside_it(given)
    if not _NAMESPACE.fullmatch(given.namespace):
        raise InputError(f"--namespace {given.namespace}: no namespace can have this name.")
    texts = {name: read_text(name) for name in given.files}
    with closing(_Remote(server)) as remote:
        answers = [
            remote.ask(shown_name(name), text.encode(), given.namespace)
            for name, text in texts.items()
        ]
    entries = tuple(entry for answer in answers for entry in answer.items)
    told = dict.fromkeys(one for answer in answers for one in answer.warnings)
    warnings = [one for one in told if one != NO_PODS]
    if not entries:
        warnings.append(NO_PODS)
    return CheckReport(
        items=entries,
        unjudged=tuple(one for answer in answers for one in answer.unjudged),
        warnings=tuple(warnings),
        notes=tuple(dict.fromkeys(one for answer in answers for one in answer.notes)),
    )


def _refuse_files_beside_it(given: Given) -> None:
    for option, file in (
        ("--policy", given.policy),
        ("--profile", given.profile),
        ("--cluster", given.cluster),
    ):
        if file is not None:
            raise InputError(
                f"{option} cannot be given with --server, which has its own. Leave one of them out."
            )


class _Remote:
    """A dry-run API, and what its answers mean."""

    def __init__(self, server: Server) -> None:
        self._url = server.url.rstrip("/")
        self._token_file = server.token_file
        address = _address(server.url)
        self._name = server.name or address[0]
        self._headers = {
            # It reads JSON as well: whatever is JSON, is YAML.
            "Content-Type": "application/yaml",
            "Authorization": f"Bearer {_token(server.token_file)}",
        }
        self._connection = _Connection(address, self._name, _context(server.authority_file))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def ask(self, file: str, body: bytes, namespace: str) -> CheckReport:
        """Return the answer for one file, with its places in that file.

        Raises:
            InputError: There is none.
        """
        try:
            status, content = self._exchange(body, namespace)
        except (OSError, HTTPException) as error:
            self._fail(_why(error, self._name))
        if status != 200:
            self._refuse(status, _first_line(content), file)
        try:
            answer = msgspec.json.decode(content, type=DryRun)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self._stranger("with something else")
        passed_over = {one.sentence for one in answer.unjudged}
        return CheckReport(
            items=tuple(_placed(pod, file) for pod in answer.pods),
            unjudged=tuple(
                replace(one, source=_place(one.source, file)) for one in answer.unjudged
            ),
            warnings=tuple(_place(one, file) for one in answer.warnings if one not in passed_over),
            notes=answer.notes,
        )

    def _exchange(self, body: bytes, namespace: str) -> tuple[int, bytes]:
        query = urlencode({"namespace": namespace})
        # A server may refuse a long body, and close, before it has read it.
        with suppress(BrokenPipeError, ConnectionResetError):
            self._connection.request("POST", f"{PATH}?{query}", body, self._headers)
        answer = self._connection.getresponse()
        return answer.status, answer.read(MOST_BYTES)

    def _refuse(self, status: int, reason: str, file: str) -> NoReturn:
        match status:
            case 400 if reason.startswith(f"{BODY_NAME}:"):
                raise InputError(_place(reason, file)) from None
            case 400:
                self._fail(f"it cannot read {file}: {reason}. Mend the file.")
            case 401:
                self._fail(
                    f"it does not take the token in {self._token_file}. Make a new one: "
                    f"{_MAKE_TOKEN}."
                )
            case 403:
                self._fail(f"{reason}. Ask for a role that may, or name another namespace.")
            case 413:
                self._fail(f"{file} is too much for one question: {reason}. Split it.")
            case 503:
                self._fail(f"{reason}. Try again in a moment.")
            case _:
                self._stranger(f"with status {status}")

    def _stranger(self, how: str) -> NoReturn:
        self._fail(
            f"it answers {how}, not as this version's dry-run API does. Name the address of port "
            "8444 of linkwise-webhook, and use the linkwise of its version."
        )

    def _fail(self, message: str) -> NoReturn:
        raise InputError(f"{self._url}: {message}") from None


def _address(url: str) -> tuple[str, int]:
    try:
        parts = urlsplit(url)
        beyond = parts.path.strip("/") or parts.query
        if parts.scheme == "https" and parts.hostname and not beyond:
            return parts.hostname, parts.port or 443
    except ValueError:
        pass
    raise InputError(
        f"--server {url}: write an address such as https://127.0.0.1:8444, where `{_FORWARD}` "
        "puts it."
    )


def _token(file: str | None) -> str:
    if file is None:
        raise InputError(
            f"--server asks who you are: make a token with `{_MAKE_TOKEN}`, and name its file with "
            "--token-file."
        )
    token = read_text(file).strip()
    if not _TOKEN.fullmatch(token):
        raise InputError(f"{shown_name(file)}: there is no token in it. Make one: {_MAKE_TOKEN}.")
    return token


def _context(authority_file: str | None) -> ssl.SSLContext:
    if authority_file is None:
        return ssl.create_default_context()
    try:
        return ssl.create_default_context(cadata=read_text(authority_file))
    except (ssl.SSLError, ValueError):
        raise InputError(
            f"{shown_name(authority_file)}: there is no certificate in it. Write one: {_GET_CA}."
        ) from None


def _why(error: Exception, name: str) -> str:
    """Return why there is no answer, and what to do."""
    match error:
        case ssl.SSLCertVerificationError():
            return _distrust(error, name)
        case ssl.SSLError():
            return f"this is no TLS port ({error.reason}). Name port 8444 of linkwise-webhook."
        case TimeoutError():
            return f"no answer in {TIMEOUT} s. See whether linkwise-webhook is ready."
        case socket.gaierror():
            return f"there is no host {name}. Name one that is reached from here: {_FORWARD}."
        case OSError():
            reason = (error.strerror or "the connection was closed without an answer").lower()
            return f"{reason}. See whether it can be reached from here: {_FORWARD}."
        case _:
            return "it answers, but not in HTTP. Name port 8444 of linkwise-webhook."


def _distrust(error: ssl.SSLCertVerificationError, name: str) -> str:
    if error.verify_code in _WRONG_NAME:
        return (
            f"its certificate is not for {name}. Say whom it is for, such as "
            f"--tls-server-name {SERVER_NAME}."
        )
    if error.verify_code == _EXPIRED:
        return "its certificate has expired. See whether linkwise-certs is ready."
    return (
        f"its certificate is not trusted ({error.verify_message}). Name the CA that signed it with "
        f"--certificate-authority: {_GET_CA}."
    )


def _first_line(content: bytes) -> str:
    return content.decode(errors="replace").partition("\n")[0][:500]


def _placed(pod: Entry, file: str) -> Entry:
    """Return an entry whose places are in the file, not in what was sent."""
    findings = tuple(replace(one, source=_place(one.source, file)) for one in pod.findings)
    return replace(pod, source=_place(pod.source, file), findings=findings)


def _place(text: str, file: str) -> str:
    return file + text.removeprefix(BODY_NAME) if text.startswith(f"{BODY_NAME}:") else text
