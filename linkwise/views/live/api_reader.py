"""Reads objects from an API server with the rights of a kubeconfig's user."""

import ssl
from collections.abc import Callable
from typing import NoReturn, TypeVar

import aiohttp
import msgspec

from linkwise.manifest.value import InputError
from linkwise.runtime.kube.client import ApiError, Kube, KubeError, Unreadable
from linkwise.runtime.kube.paging import Page, Params, pages
from linkwise.views.files.objects import Plain

T = TypeVar("T")

EXPIRED = 410
"""The status if the resource version of a paged list is too old."""
PAGE = 500
"""Objects in one page of a list."""
_NONE: Params = {}


class NotFound(Exception):  # noqa: N818 - as in client-go
    """There is no such object, or no such kind of object."""


class Forbidden(Exception):  # noqa: N818
    """The user may not read it; the message is the API server's."""


class ApiReader:
    """Reads with the rights of a person, and explains what fails."""

    def __init__(self, kube: Kube) -> None:
        """Read by a client that is open."""
        self._kube, self.server = kube, kube.server

    async def get(self, path: str) -> Plain:
        """Return the object at a path.

        Raises:
            NotFound: There is none.
            Forbidden: The user may not read it.
            InputError: There is no answer.
        """
        try:
            return await self._kube.get(path, dict)
        except KubeError as error:
            self._fail(error, path)

    async def create(self, path: str, body: Plain, returns: type[T]) -> T:
        """Return what the API server makes of an object, such as a review that it does not store.

        Raises:
            NotFound: There is no such collection.
            Forbidden: The user may not create it.
            InputError: There is no answer.
        """
        try:
            return await self._kube.create(path, body, returns)
        except KubeError as error:
            self._fail(error, path)

    async def collection(
        self, path: str, keep: Callable[[Plain], T | None], fields: Params = _NONE
    ) -> list[T]:
        """Return the reduced objects of a collection, which is read page by page.

        Args:
            path: Of the collection.
            keep: Reduces an object; an object for which it returns None is left out.
            fields: Values of fields; objects with others are left out by the API server.

        Raises:
            NotFound: There is no such collection.
            Forbidden: The user may not list it.
            InputError: There is no answer.
        """

        async def read(params: Params) -> Page[Plain]:
            return await self._kube.get(path, Page[Plain], params=params)

        async def collected(params: Params) -> list[T]:
            return [
                small
                async for page in pages(read, params)
                for item in page.items or ()
                if (small := keep(item)) is not None
            ]

        selector = ",".join(f"{name}={value}" for name, value in fields.items())
        selected = {"fieldSelector": selector} if selector else {}
        try:
            try:
                return await collected({"limit": str(PAGE), **selected})
            except ApiError as error:
                if error.status != EXPIRED:
                    raise
                return await collected(selected)
        except KubeError as error:
            self._fail(error, path)
        except msgspec.ValidationError as error:
            self.fail(f"{path} has an object that Kubernetes would not take: {error}. Correct it.")

    def _fail(self, error: KubeError, path: str) -> NoReturn:
        match error:
            case ApiError(status=401):
                self.fail("it rejects your credentials (status 401). Log in again as for kubectl.")
            case ApiError(status=403):
                raise Forbidden(_line(error.message)) from None
            case ApiError(status=404):
                raise NotFound(path) from None
            case ApiError():
                message = _line(error.message) or "no explanation"
                self.fail(f"{path}: {message} (status {error.status}). Try again.")
            case Unreadable():
                self.fail("it does not answer as an API server does. Look at the kubeconfig.")
            case _:
                reason = reason_of(error.__cause__ or error)
                self.fail(f"{reason}. See whether kubectl gets an answer, or name a --context.")

    def fail(self, message: str) -> NoReturn:
        """Raise InputError; the message starts with the server's address."""
        raise InputError(f"{self._kube.server}: {message}") from None


def _line(message: str) -> str:
    return " ".join(message.split()).rstrip(".")


def reason_of(error: BaseException) -> str:
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
