"""A plain client of the API server for tests.

Nothing is tried twice, but what the API server says is to be tried later: it has done nothing then.
"""

import json
import ssl
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from typing import Any, TypeAlias
from urllib.parse import urlencode

from urllib3 import PoolManager, Retry
from urllib3.exceptions import HTTPError

Object: TypeAlias = dict[str, Any]

_PATCHES = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}


class ApiError(Exception):
    """An error response of the API server."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status, self.reason, self.message = status, reason, message


def refusal(call: Callable[[], object]) -> str:
    """Return the reason of a refused call; empty when it is not refused."""
    try:
        call()
    except ApiError as error:
        return error.message
    return ""


class Api:
    """The API server, seen by one user; for all threads."""

    def __init__(
        self, server: str, token: str, context: ssl.SSLContext, timeout: float = 30
    ) -> None:
        """Prepare a client.

        Args:
            server: `https://127.0.0.1:PORT`.
            token: The user's.
            context: What verifies the server.
            timeout: For every step of a request [s].
        """
        self.server, self.token = server, token
        self._headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        # As long as watches of a kind begin, lists of it are answered with 429 and Retry-After.
        later = Retry(
            10,
            connect=0,
            read=0,
            redirect=0,
            other=0,
            allowed_methods=None,
            raise_on_status=False,
        )
        self._pool = PoolManager(maxsize=16, ssl_context=context, timeout=timeout, retries=later)

    def get(self, path: str, **query: str) -> Object:
        """Return an object, or a list of them."""
        return self._ask("GET", path, None, query)

    def create(self, path: str, body: Object, **query: str) -> Object:
        """Create an object in the collection at `path`, and return it."""
        return self._ask("POST", path, body, query)

    def update(self, path: str, body: Object, **query: str) -> Object:
        """Replace an object."""
        return self._ask("PUT", path, body, query)

    def patch(self, path: str, body: object, kind: str = "merge", **query: str) -> Object:
        """Change an object by a patch: json, merge, strategic or apply."""
        return self._ask("PATCH", path, body, query, _PATCHES[kind])

    def send(self, method: str, path: str, body: bytes, content: str, **query: str) -> Object:
        """Send a body as it is, and return the answer."""
        return self._ask(method, path, body, query, content)

    def delete(self, path: str, **query: str) -> Object:
        """Delete an object, or all of a collection."""
        return self._ask("DELETE", path, None, query)

    def text(self, path: str) -> str:
        """Return what is at a path that is no object, such as `/readyz`."""
        return self._send("GET", path, None, "").decode()

    def lines(self, path: str, silence: float, **query: str) -> Generator[bytes, None, None]:
        """Yield the lines of a response until it ends, or until no line arrives in time [s]."""
        url = f"{self.server}{path}?{urlencode(query)}"
        try:
            answer = self._pool.request(
                "GET", url, headers=self._headers, preload_content=False, timeout=silence
            )
            with closing(answer):
                if answer.status >= 400:
                    raise _api_error(answer.status, answer.data)
                yield from answer
        except HTTPError as error:
            raise OSError(str(error)) from None

    def _ask(
        self,
        method: str,
        path: str,
        body: object,
        query: Mapping[str, str],
        content: str = "application/json",
    ) -> Object:
        whole = f"{path}?{urlencode(query)}" if query else path
        answer: Object = json.loads(self._send(method, whole, body, content))
        return answer

    def _send(self, method: str, path: str, body: object, content: str) -> bytes:
        headers, data = self._headers, None
        if body is not None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            headers = {**headers, "Content-Type": content}
        try:
            answer = self._pool.request(method, self.server + path, body=data, headers=headers)
        except HTTPError as error:
            raise OSError(str(error)) from None
        if answer.status >= 400:
            raise _api_error(answer.status, answer.data)
        return answer.data


def _api_error(code: int, body: bytes) -> ApiError:
    try:
        status = json.loads(body)
    except ValueError:
        status = {"message": body.decode(errors="replace")}
    return ApiError(code, status.get("reason", ""), status.get("message", ""))
