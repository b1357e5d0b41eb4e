"""A plain client of the API server for tests: one connection a request, nothing is tried twice."""

import json
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

Object: TypeAlias = dict[str, Any]

_PATCHES = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}


class ApiError(Exception):
    """What the API server answers when it does not do what it was asked."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status, self.reason, self.message = status, reason, message


def refusal(call: Callable[[], object]) -> str:
    """Return what a call is refused with; empty when it is not."""
    try:
        call()
    except ApiError as error:
        return error.message
    return ""


@dataclass(frozen=True, slots=True)
class Api:
    """The API server, seen by one user."""

    server: str
    """`https://127.0.0.1:PORT`."""
    token: str
    context: ssl.SSLContext
    timeout: float = 30
    """For every step of a request [s]."""

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

    def delete(self, path: str, **query: str) -> Object:
        """Delete an object, or all of a collection."""
        return self._ask("DELETE", path, None, query)

    def text(self, path: str) -> str:
        """Return what is at a path that is no object, such as `/readyz`."""
        return self._send(self._request("GET", path, None, "")).decode()

    def _ask(
        self,
        method: str,
        path: str,
        body: object,
        query: Mapping[str, str],
        content: str = "application/json",
    ) -> Object:
        whole = f"{path}?{urlencode(query)}" if query else path
        answer: Object = json.loads(self._send(self._request(method, whole, body, content)))
        return answer

    def _request(self, method: str, path: str, body: object, content: str) -> Request:
        headers = {"Authorization": f"Bearer {self.token}", "Accept": "application/json"}
        data = None
        if body is not None:
            data, headers["Content-Type"] = json.dumps(body).encode(), content
        return Request(self.server + path, data, headers, method=method)  # noqa: S310

    def _send(self, request: Request) -> bytes:
        try:
            with urlopen(request, timeout=self.timeout, context=self.context) as answer:  # noqa: S310
                body: bytes = answer.read()
                return body
        except HTTPError as error:
            with error:
                raise _api_error(error.code, error.read()) from None


def _api_error(code: int, body: bytes) -> ApiError:
    try:
        status = json.loads(body)
    except ValueError:
        status = {"message": body.decode(errors="replace")}
    return ApiError(code, status.get("reason", ""), status.get("message", ""))
