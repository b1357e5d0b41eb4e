"""Client of the Kubernetes API and of our own: typed bodies, few errors, time limits.

A call that raises anything else than a KubeError has sent nothing: its body cannot be encoded.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from copy import copy
from pathlib import Path
from typing import Literal, Self, TypeVar

import aiohttp
import msgspec
from msgspec.json import Decoder

from linkwise.runtime.kube.call_limiter import CallLimiter
from linkwise.runtime.kube.decode import decode
from linkwise.runtime.kube.errors import (
    UNDECODABLE,
    ApiError,
    KubeError,
    TooLong,
    Unreachable,
    Unreadable,
)
from linkwise.runtime.kube.session import Params, ServerSession
from linkwise.runtime.process.settings import ProcessSettings

__all__ = ["ApiError", "Ignored", "Kube", "KubeError", "Unreachable", "Unreadable"]

T = TypeVar("T")

_MOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_PATCHES = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "apply": "application/apply-patch+yaml",
    "strategic": "application/strategic-merge-patch+json",
}
_CONNECT = 10.0
"""The longest time to connect [s]."""
_NONE: Params = {}


class Ignored(msgspec.Struct, frozen=True):
    """A response whose body is not needed."""


class Kube(ServerSession):
    """A client of one API server, with one account; use it in `async with`."""

    _limiter: CallLimiter | None = None
    _headers: Params = _NONE

    @classmethod
    def from_settings(
        cls,
        settings: ProcessSettings,
        environment: Mapping[str, str],
        *,
        mount: Path = _MOUNT,
        timeout: float = 10,
    ) -> Self:
        """Return a client of the server in the settings; if it is empty, of that of this pod.

        Args:
            settings: Server, token and CA.
            environment: Environment of the process.
            mount: Folder of the token and the CA of this pod.
            timeout: Of one whole call [s].

        Raises:
            KeyError: No server is set, and the process runs in no pod.
        """
        server, token, ca = settings.api_server, settings.api_token_file, settings.api_ca_file
        if not server:
            host = environment["KUBERNETES_SERVICE_HOST"]
            address = f"[{host}]" if ":" in host else host
            server = f"https://{address}:{environment['KUBERNETES_SERVICE_PORT']}"
            token, ca = str(mount / "token"), str(mount / "ca.crt")
        return cls(
            server,
            token_file=Path(token) if token else None,
            ca_file=Path(ca) if ca else None,
            timeout=timeout,
        )

    def limited(self, limiter: CallLimiter) -> Self:
        """Return the same open client whose calls, other than watches, wait for a limiter.

        The time limit of a call starts when it is sent.
        """
        client = copy(self)
        client._limiter = limiter  # noqa: SLF001 - of the same class.
        return client

    def sending(self, headers: Params) -> Self:
        """Return the same open client whose calls, other than watches, have more headers."""
        client = copy(self)
        client._headers = headers  # noqa: SLF001 - of the same class.
        return client

    async def get(
        self, path: str, returns: type[T], *, params: Params = _NONE, max_bytes: int | None = None
    ) -> T:
        """Return an object or a list.

        Args:
            path: Of an object, or of a collection.
            returns: The type to decode.
            params: Of the query.
            max_bytes: Longest response; None: no limit.

        Raises:
            KubeError: `TooLong` for a longer response; or as any call.
        """
        return _decoded(await self._call("GET", path, params=params, max_bytes=max_bytes), returns)

    async def find(self, path: str, returns: type[T], *, max_bytes: int | None = None) -> T | None:
        """Return an object; None: it does not exist. Arguments and errors are those of `get`."""
        try:
            return await self.get(path, returns, max_bytes=max_bytes)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def create(
        self, path: str, body: object, returns: type[T], *, params: Params = _NONE
    ) -> T:
        """Create an object in a collection; return it as it was stored."""
        return _decoded(await self._call("POST", path, body=body, params=params), returns)

    async def post(
        self,
        path: str,
        body: bytes,
        returns: type[T],
        *,
        content_type: str,
        params: Params = _NONE,
        max_bytes: int | None = None,
    ) -> T:
        """Send a body that is no object of the API; return the answer. Arguments as in `get`."""
        answer = await self._call(
            "POST",
            path,
            body=msgspec.Raw(body),
            params=params,
            content_type=content_type,
            max_bytes=max_bytes,
        )
        return _decoded(answer, returns)

    async def update(self, path: str, body: object, returns: type[T]) -> T:
        """Replace an object if it still has the resourceVersion of the body."""
        return _decoded(await self._call("PUT", path, body=body, params=_NONE), returns)

    async def patch(
        self,
        path: str,
        body: object,
        returns: type[T],
        *,
        kind: Literal["json", "merge", "apply", "strategic"],
        params: Params = _NONE,
    ) -> T:
        """Change an object: by JSON patch, (strategic) merge patch, or server-side apply.

        Apply needs the parameter `fieldManager`.
        """
        content = _PATCHES[kind]
        response = await self._call("PATCH", path, body=body, params=params, content_type=content)
        return _decoded(response, returns)

    async def delete(self, path: str, *, body: object = None, params: Params = _NONE) -> None:
        """Delete an object; the body can be DeleteOptions with preconditions."""
        await self._call("DELETE", path, body=body, params=params)

    async def _call(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        params: Params,
        content_type: str = "application/json",
        max_bytes: int | None = None,
    ) -> bytes:
        timeout = aiohttp.ClientTimeout(total=self._timeout, sock_connect=_CONNECT)
        data = None if body is None else msgspec.json.encode(body)
        kind = {} if data is None else {"Content-Type": content_type}
        headers = {**self._headers, **kind}
        async with (
            self._slot(path),
            self._request(
                method, path, params=params, data=data, headers=headers, timeout=timeout
            ) as response,
        ):
            return await response.read() if max_bytes is None else await _read(response, max_bytes)

    def _slot(self, path: str) -> AbstractAsyncContextManager[None]:
        return self._limiter.slot(_namespace(path)) if self._limiter else nullcontext()

    async def stream(
        self, path: str, params: Params, *, read_timeout: float
    ) -> AsyncGenerator[list[bytes], None]:
        """Yield the lines of a watch as they arrive, until it ends.

        The first list is empty: the API server has accepted the watch. Close the generator to leave
        early.

        Args:
            path: Of a collection.
            params: Of the query.
            read_timeout: The stream is closed after this time without a byte [s].

        Raises:
            ApiError: The watch is refused.
            Unreachable: The connection broke.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT, sock_read=read_timeout)
        async with self._request("GET", path, params=params, timeout=timeout) as response:
            yield []
            rest = b""
            async for chunk in response.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                if lines:
                    yield lines


def _namespace(path: str) -> str:
    return path.partition("/namespaces/")[2].partition("/")[0]


async def _read(response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    parts, size = [], 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > max_bytes:
            raise TooLong(f"{response.url.path}: the answer has more than {max_bytes} bytes")
        parts.append(part)
    return b"".join(parts)


def _decoded(body: bytes, returns: type[T]) -> T:
    try:
        return decode(body, Decoder(returns))
    except UNDECODABLE as error:
        raise Unreadable(f"the answer is not a {returns.__name__}: {error}") from error
