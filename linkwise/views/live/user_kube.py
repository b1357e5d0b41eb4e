"""A client of the Kubernetes API with the credentials of a kubeconfig, which it reads again.

Tokens of credential plugins last for minutes, and the client is used for hours.
"""

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Self

import aiohttp

from linkwise.manifest.value import InputError
from linkwise.runtime.kube.client import ApiError, Kube
from linkwise.views.live.kubeconfig import Access, UserContext, load_user_context

TIMEOUT = 60.0
"""Of one call [s]: a page of objects may come through a slow tunnel."""


class UserKube(Kube):
    """A client with the rights of a person."""

    @classmethod
    async def of(cls, access: Access) -> Self:
        """Return a client with the credentials that a kubeconfig has now.

        Raises:
            InputError: The kubeconfig, or a certificate in it, cannot be used.
        """
        user = await load_user_context(access)
        try:
            return cls(access, user)
        except (OSError, ValueError) as error:
            # An SSLError is an OSError.
            reason = " ".join(str(error).split())
            raise InputError(
                f"the kubeconfig's certificates cannot be used: {reason}. Try kubectl."
            ) from None

    def __init__(self, access: Access, user: UserContext) -> None:
        """Create a client without a connection.

        Args:
            access: Chooses the credentials; they are read again after a response 401.
            user: The credentials now.

        Raises:
            OSError: The certificates cannot be used.
        """
        authority = user.configuration.ssl_ca_cert
        super().__init__(
            user.server,
            ca_file=Path(authority) if authority else None,
            server_name=user.configuration.tls_server_name,
            timeout=TIMEOUT,
        )
        self.namespace = user.namespace
        """The namespace of the context."""
        self._access, self._user = access, user
        configuration = user.configuration
        if not configuration.verify_ssl:
            self._context.check_hostname = False
            self._context.verify_mode = ssl.CERT_NONE
        self._load_certificate()

    async def __aenter__(self) -> Self:
        configuration = self._user.configuration
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._context, limit=0),
            proxy=configuration.proxy,
            trust_env=True,
        )
        return self

    @asynccontextmanager
    async def _request(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] = {},
        **options: Any,  # noqa: ANN401 - aiohttp's.
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        try:
            async with super()._request(method, path, headers=headers, **options) as response:
                yield response
        except ApiError as error:
            if error.status == 401:
                await self._renew()
            raise

    async def _renew(self) -> None:
        with suppress(InputError, OSError):
            self._user = await load_user_context(self._access)
            self._load_certificate()

    def _load_certificate(self) -> None:
        configuration = self._user.configuration
        if configuration.cert_file:
            self._context.load_cert_chain(configuration.cert_file, configuration.key_file)

    def _authorization(self) -> Mapping[str, str]:
        return self._user.headers
