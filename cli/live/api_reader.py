"""Reads objects from an API server with the rights of a kubeconfig's user."""

import ssl
from collections.abc import Callable
from typing import NoReturn, Self, TypeVar, cast

import aiohttp
import msgspec
from kubernetes_asyncio.client.rest import RESTClientObject

from cli.files.objects import Plain
from cli.live.kubeconfig import UserContext
from manifest.value import InputError
from runtime.kube.decode import decode
from runtime.kube.errors import api_error
from runtime.kube.paging import Page, Params, pages

T = TypeVar("T")

PAGE = 500
"""Objects in one page of a list."""
TIMEOUT = aiohttp.ClientTimeout(sock_connect=10, sock_read=60)
"""[s]"""


class NotFound(Exception):  # noqa: N818 - as in client-go
    """There is no such object, or no such kind of object."""


class Forbidden(Exception):  # noqa: N818
    """The user may not read it; the message is the API server's."""


class _Expired(Exception):  # noqa: N818
    """The resource version of a paged list is too old."""


class ApiReader:
    """A connection to an API server as one user, to be used in `async with`."""

    def __init__(self, user: UserContext) -> None:
        """Prepare a connection.

        Raises:
            InputError: The user's certificates cannot be used.
        """
        self.user = user
        try:
            self._client = RESTClientObject(user.configuration)
        except (OSError, ValueError) as error:
            # An SSLError is an OSError.
            reason = " ".join(str(error).split())
            raise InputError(
                f"the kubeconfig's certificates cannot be used: {reason}. Try kubectl."
            ) from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def get(self, path: str) -> Plain:
        """Return the object at a path.

        Raises:
            NotFound: There is none.
            Forbidden: The user may not read it.
            InputError: There is no answer.
        """
        return self._decoded(await self._get(path, {}), dict)

    async def collection(self, path: str, keep: Callable[[Plain], T | None]) -> list[T]:
        """Return the reduced objects of a collection, which is read page by page.

        Args:
            path: Of the collection.
            keep: Reduces an object; an object for which it returns None is left out.

        Raises:
            NotFound: There is no such collection.
            Forbidden: The user may not list it.
            InputError: There is no answer.
        """
        try:
            return await self._pages(path, keep, {"limit": str(PAGE)})
        except _Expired:
            return await self._pages(path, keep, {})

    async def _pages(
        self, path: str, keep: Callable[[Plain], T | None], params: dict[str, str]
    ) -> list[T]:
        async def read(params: Params) -> Page[Plain]:
            return self._decoded(await self._get(path, params), Page[Plain])

        kept: list[T] = []
        async for page in pages(read, params):
            try:
                kept += [small for item in page.items or () if (small := keep(item)) is not None]
            except msgspec.ValidationError as error:
                self.fail(
                    f"{path} has an object that Kubernetes would not take: {error}. Correct it."
                )
        return kept

    async def _get(self, path: str, params: Params) -> bytes:
        try:
            response = await self._client.GET(
                f"{self.user.server}{path}",
                query_params=dict(params),
                headers=cast(dict[str, str], self.user.headers.copy()),
                _preload_content=False,
                _request_timeout=TIMEOUT,
            )
            async with response:
                status, body = response.status, await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            self.fail(f"{_reason(error)}. See whether kubectl gets an answer, or name a --context.")
        if status >= 300:
            self._raise(status, body, path)
        return bytes(body)

    def _raise(self, status: int, body: bytes, path: str) -> NoReturn:
        message = " ".join(api_error(status, body).message.split()).rstrip(".")
        match status:
            case 401:
                self.fail("it rejects your credentials (status 401). Log in again as for kubectl.")
            case 403:
                raise Forbidden(message)
            case 404:
                raise NotFound(path)
            case 410:
                raise _Expired
            case _:
                self.fail(f"{path}: {message or 'no explanation'} (status {status}). Try again.")

    def _decoded(self, body: bytes, kind: type[T]) -> T:
        try:
            return decode(body, msgspec.json.Decoder(kind))
        except (msgspec.DecodeError, UnicodeDecodeError):
            self.fail("it does not answer as an API server does. Look at the kubeconfig.")

    def fail(self, message: str) -> NoReturn:
        """Raise InputError; the message starts with the server's address."""
        raise InputError(f"{self.user.server}: {message}") from None


def _reason(error: Exception) -> str:
    """Return in a few words why there is no response."""
    match error:
        case aiohttp.ClientConnectorCertificateError():
            inner = error.certificate_error
            detail = inner.verify_message if isinstance(inner, ssl.SSLCertVerificationError) else ""
            return f"its certificate is not trusted ({detail or inner})"
        case aiohttp.ClientConnectorDNSError():
            return "there is no such host"
        case TimeoutError():
            return "no answer in time"
        case OSError() if error.strerror:
            return error.strerror.lower()
        case _:
            return " ".join(str(error).split()) or type(error).__name__
