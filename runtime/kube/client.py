"""Calls to the Kubernetes API, or one like it: typed bodies, few errors, a time limit on each.

A call that raises no KubeError has sent nothing: its body could not be encoded.
"""

import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

import aiohttp
import msgspec
from msgspec.json import Decoder
from yarl import URL

from runtime.kube.decode import decode
from runtime.kube.errors import (
    UNDECODABLE,
    ApiError,
    KubeError,
    TooLong,
    Unreachable,
    Unreadable,
    api_error,
)

__all__ = ["ApiError", "Kube", "KubeError", "Unreachable", "Unreadable"]

T = TypeVar("T")
Params = Mapping[str, str]

_MOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_PATCHES = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
_NONE: Params = {}


class Kube:
    """One API server, as one account; use it in `async with`."""

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
        """Say whom to ask, and as whom.

        Args:
            server: Such as `https://10.0.0.1:443`.
            token_file: Read for every call: mounted tokens are replaced while the process runs.
            token: A token that stays; used where there is no file.
            ca_file: Who signs the server's certificate; the system's authorities when None.
            server_name: Whom that certificate is for; the server's host when None.
            timeout: Of one call, all of it [s].
        """
        self.server = server.rstrip("/")
        self._token_file, self._token = token_file, token
        self._ca_file, self._server_name = ca_file, server_name
        self._timeout = timeout
        self._context = ssl.create_default_context(cafile=ca_file)
        # From 3.13 on Python asks for extensions that the authorities of some clusters lack.
        self._context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        self._session: aiohttp.ClientSession | None = None

    @classmethod
    def in_cluster(
        cls, environment: Mapping[str, str], mount: Path = _MOUNT, *, timeout: float = 10
    ) -> Self:
        """Return the API server and account that a pod is given.

        Args:
            environment: The process's.
            mount: Where its token and the CA are.
            timeout: Of one call, all of it [s].

        Raises:
            KeyError: The environment is not a pod's.
        """
        host, port = environment["KUBERNETES_SERVICE_HOST"], environment["KUBERNETES_SERVICE_PORT"]
        address = f"[{host}]" if ":" in host else host
        server = f"https://{address}:{port}"
        token, ca = mount / "token", mount / "ca.crt"
        return cls(server, token_file=token, ca_file=ca, timeout=timeout)

    @classmethod
    def from_settings(
        cls,
        server: str,
        token_file: str,
        ca_file: str,
        environment: Mapping[str, str],
        *,
        timeout: float = 10,
    ) -> Self:
        """Return the API server that settings name; where they name none, the one a pod is given.

        Raises:
            KeyError: None is named, and the environment is not a pod's.
        """
        if not server:
            return cls.in_cluster(environment, timeout=timeout)
        return cls(
            server,
            token_file=Path(token_file) if token_file else None,
            ca_file=Path(ca_file) if ca_file else None,
            timeout=timeout,
        )

    async def __aenter__(self) -> Self:
        # A watch holds a connection for as long as it lasts, so their number is not limited.
        connector = aiohttp.TCPConnector(ssl=self._context, limit=0)
        self._session = aiohttp.ClientSession(connector=connector)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def get(
        self, path: str, returns: type[T], *, params: Params = _NONE, most: int | None = None
    ) -> T:
        """Return what is at a path.

        Args:
            path: Of an object, or of a collection.
            returns: What it is read as.
            params: Of the query.
            most: So many bytes are read at most; None: all that come.

        Raises:
            KubeError: `TooLong` where there are more bytes; or as any call.
        """
        return _decoded(await self._call("GET", path, params=params, most=most), returns)

    async def create(
        self, path: str, body: object, returns: type[T], *, params: Params = _NONE
    ) -> T:
        """Create an object in a collection, and return it as it was stored."""
        return _decoded(await self._call("POST", path, body=body, params=params), returns)

    async def update(
        self, path: str, body: object, returns: type[T], *, params: Params = _NONE
    ) -> T:
        """Replace an object, if it is still of the body's resourceVersion."""
        return _decoded(await self._call("PUT", path, body=body, params=params), returns)

    async def patch(
        self,
        path: str,
        body: object,
        returns: type[T],
        *,
        kind: Literal["json", "merge", "apply"],
        params: Params = _NONE,
    ) -> T:
        """Change an object: by JSON patch, by merge patch, or by server-side apply.

        Applying needs the parameter `fieldManager`.
        """
        content = _PATCHES[kind]
        answer = await self._call("PATCH", path, body=body, params=params, content_type=content)
        return _decoded(answer, returns)

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
        most: int | None = None,
    ) -> bytes:
        timeout = aiohttp.ClientTimeout(total=self._timeout)
        data = None if body is None else msgspec.json.encode(body)
        headers = {} if data is None else {"Content-Type": content_type}
        async with self._request(
            method, path, params=params, data=data, headers=headers, timeout=timeout
        ) as answer:
            return await answer.read() if most is None else await _read(answer, most)

    async def stream(
        self, path: str, params: Params, *, read_timeout: float
    ) -> AsyncGenerator[list[bytes], None]:
        """Yield the lines that a path sends, as they come, until it ends.

        The first list is empty: the API server has agreed. Close the generator when leaving early.

        Args:
            path: Of a collection that is watched.
            params: Of the watch.
            read_timeout: The stream is closed after this time without a byte [s].

        Raises:
            ApiError: It is refused.
            Unreachable: It broke.
        """
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=self._timeout, sock_read=read_timeout
        )
        async with self._request("GET", path, params=params, timeout=timeout) as answer:
            yield []
            rest = b""
            async for chunk in answer.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                if lines:
                    yield lines

    @asynccontextmanager
    async def _request(
        self,
        method: str,
        path: str,
        *,
        headers: Params = _NONE,
        **options: Any,  # noqa: ANN401 - aiohttp's.
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        if self._session is None:
            raise RuntimeError("Kube is used outside its `async with`")
        try:
            async with self._session.request(
                method,
                URL(self.server + path),
                headers={**headers, **self._authorization()},
                allow_redirects=False,
                server_hostname=self._server_name,
                **options,
            ) as answer:
                if answer.status >= 300:
                    raise api_error(answer.status, await answer.read())  # noqa: TRY301
                yield answer
        except KubeError:
            raise
        except Exception as error:
            # Whatever else the client raises: the request may have been sent by then.
            self._trust_again(error)
            cause = str(error) or type(error).__name__
            raise Unreachable(f"{method} {path}: {cause}") from error

    def _authorization(self) -> Params:
        token = self._token_file.read_text() if self._token_file else self._token
        return {"Authorization": f"Bearer {token.strip()}"} if token else {}

    def _trust_again(self, error: Exception) -> None:
        """Read the CA file again when a certificate was not trusted: it may have been replaced."""
        if isinstance(error, aiohttp.ClientConnectorCertificateError) and self._ca_file:
            with suppress(OSError):
                self._context.load_verify_locations(self._ca_file)


async def _read(answer: aiohttp.ClientResponse, most: int) -> bytes:
    parts, size = [], 0
    async for part in answer.content.iter_any():
        size += len(part)
        if size > most:
            raise TooLong(f"{answer.url.path}: the answer has more than {most} bytes")
        parts.append(part)
    return b"".join(parts)


def _decoded(body: bytes, returns: type[T]) -> T:
    try:
        return decode(body, Decoder(returns))
    except UNDECODABLE as error:
        raise Unreadable(f"the answer is not a {returns.__name__}: {error}") from error
