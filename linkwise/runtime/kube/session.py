"""An authenticated HTTP session with one API server."""

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Self

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from linkwise.runtime.kube.errors import KubeError, TimedOut, Unreachable, api_error

Params = Mapping[str, str]


class ServerSession:
    """A session with one API server and one account; use it in `async with`."""

    def __init__(
        self,
        server: str,
        *,
        token_file: Path | None = None,
        token: str | None = None,
        ca_file: Path | None = None,
        server_name: str | None = None,
        timeout: float = 10,
    ) -> None:
        """Start without a connection.

        Args:
            server: Such as `https://10.0.0.1:443`.
            token_file: Read for every call: mounted tokens are replaced while the process runs.
            token: A constant token; used if there is no file.
            ca_file: CAs of the server's certificate; None: those of the system.
            server_name: Name in the server's certificate; None: the host of `server`.
            timeout: Of one whole call [s].
        """
        self.server = server.rstrip("/")
        self._token_file, self._token = token_file, token
        self._ca_file, self._server_name = ca_file, server_name
        self._timeout = timeout
        self._context = ssl.create_default_context(cafile=ca_file)
        # From 3.13 on Python requires extensions that the CAs of some clusters lack.
        self._context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        self._session: aiohttp.ClientSession | None = None
        self._date = ""

    @property
    def server_time(self) -> float | None:
        """The server's time at its last response, in whole seconds; None: not known [s since 1970].

        It is the header `Date`, RFC 9110 §6.6.1.
        """
        try:
            return parsedate_to_datetime(self._date).timestamp()
        except (ValueError, OverflowError):
            return None

    async def __aenter__(self) -> Self:
        # Each watch holds a connection, so their number is not limited.
        connector = aiohttp.TCPConnector(ssl=self._context, limit=0)
        self._session = aiohttp.ClientSession(connector=connector)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    @asynccontextmanager
    async def _request(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] = {},
        **options: Any,  # noqa: ANN401 - aiohttp's.
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        if self._session is None:
            raise RuntimeError("Kube is used outside its `async with`")
        try:
            sent = CIMultiDict(headers)
            # A header may have several values.
            sent.extend(self._authorization())
            async with self._session.request(
                method,
                URL(self.server + path),
                headers=sent,
                allow_redirects=False,
                server_hostname=self._server_name,
                **options,
            ) as response:
                self._date = response.headers.get("Date", "")
                if response.status >= 300:
                    raise api_error(response.status, await response.read())  # noqa: TRY301
                yield response
        except KubeError:
            raise
        except Exception as error:
            # aiohttp raises other types, too. The request may have been sent.
            self._reload_ca(error)
            cause = str(error) or type(error).__name__
            kind = TimedOut if isinstance(error, TimeoutError) else Unreachable
            raise kind(f"{method} {path}: {cause}") from error

    def _authorization(self) -> Params:
        token = self._token_file.read_text() if self._token_file else self._token
        return {"Authorization": f"Bearer {token.strip()}"} if token else {}

    def _reload_ca(self, error: Exception) -> None:
        """Load the CA file again after a certificate was not trusted: it may have been replaced."""
        if isinstance(error, aiohttp.ClientConnectorCertificateError) and self._ca_file:
            with suppress(OSError):
                self._context.load_verify_locations(self._ca_file)
