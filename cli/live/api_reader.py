"""An API server, asked for objects with a person's own rights."""

import ssl
from collections.abc import Callable
from typing import Any, NoReturn, Self, TypeAlias, TypeVar, cast

import aiohttp
import msgspec
from kubernetes_asyncio.client.rest import RESTClientObject
from msgspec import Struct

from cli.live.kubeconfig import UserContext
from manifest.value import InputError
from runtime.kube.decode import decode

T = TypeVar("T")
Plain: TypeAlias = dict[str, Any]
"""An object as JSON."""

PAGE = 500
"""Objects in one answer."""
TIMEOUT = aiohttp.ClientTimeout(sock_connect=10, sock_read=60)
"""[s]"""


class NotThere(Exception):  # noqa: N818 - it says all.
    """There is no such object, or no such kind of object."""


class Forbidden(Exception):  # noqa: N818
    """This person may not read it; the message is the API server's."""


class _Expired(Exception):  # noqa: N818
    """A list changed too much while its pages were read."""


class _ListMeta(Struct, frozen=True, rename={"go_on": "continue"}):
    go_on: str = ""


class _Page(Struct, frozen=True):
    metadata: _ListMeta = _ListMeta()
    items: list[Plain] | None = None


class _Status(Struct, frozen=True):
    message: str = ""


class ApiReader:
    """One API server and one person; use it in `async with`."""

    def __init__(self, person: UserContext) -> None:
        """Say whom to ask, and as whom.

        Raises:
            InputError: The person's certificates cannot be used.
        """
        self.person = person
        try:
            self._client = RESTClientObject(person.configuration)
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
            NotThere: There is none.
            Forbidden: This person may not see it.
            InputError: There is no answer.
        """
        return self._decoded(await self._ask(path, {}), dict)

    async def collection(self, path: str, keep: Callable[[Plain], T | None]) -> list[T]:
        """Return what is kept of the objects of a collection, which is read page by page.

        Args:
            path: Of the collection.
            keep: Says what to keep of each object; None: nothing.

        Raises:
            NotThere: There is no such collection.
            Forbidden: This person may not list it.
            InputError: There is no answer.
        """
        try:
            return await self._pages(path, keep, {"limit": str(PAGE)})
        except _Expired:
            return await self._pages(path, keep, {})

    async def _pages(
        self, path: str, keep: Callable[[Plain], T | None], params: dict[str, str]
    ) -> list[T]:
        found: list[T] = []
        while True:
            page = self._decoded(await self._ask(path, params), _Page)
            try:
                found += [kept for one in page.items or () if (kept := keep(one)) is not None]
            except msgspec.ValidationError as error:
                self.fail(f"{path} has an object that Kubernetes would not take: {error}. Mend it.")
            if not page.metadata.go_on:
                return found
            params = {**params, "continue": page.metadata.go_on}

    async def _ask(self, path: str, params: dict[str, str]) -> bytes:
        try:
            answer = await self._client.GET(
                f"{self.person.server}{path}",
                query_params=params,
                headers=cast(dict[str, str], self.person.headers.copy()),
                _preload_content=False,
                _request_timeout=TIMEOUT,
            )
            async with answer:
                status, body = answer.status, await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            self.fail(f"{_why(error)}. See whether kubectl gets an answer, or name a --context.")
        if status >= 300:
            self._refuse(status, body, path)
        return bytes(body)

    def _refuse(self, status: int, body: bytes, path: str) -> NoReturn:
        try:
            message = msgspec.json.decode(body, type=_Status).message
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            message = body[:200].decode(errors="replace")
        message = " ".join(message.split()).rstrip(".")
        match status:
            case 401:
                self.fail("it does not know you. Log in again, as kubectl would have you do.")
            case 403:
                raise Forbidden(message)
            case 404:
                raise NotThere(path)
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
        """Raise InputError with the server's address before the message."""
        raise InputError(f"{self.person.server}: {message}") from None


def _why(error: Exception) -> str:
    """Return in a few words why there is no answer."""
    match error:
        case aiohttp.ClientConnectorCertificateError():
            inner = error.certificate_error
            told = inner.verify_message if isinstance(inner, ssl.SSLCertVerificationError) else ""
            return f"its certificate is not trusted ({told or inner})"
        case aiohttp.ClientConnectorDNSError():
            return "there is no such host"
        case TimeoutError():
            return "no answer in time"
        case OSError() if error.strerror:
            return error.strerror.lower()
        case _:
            return " ".join(str(error).split()) or type(error).__name__
