"""Decides which requests the server of the page answers. Pure.

The address contains a secret, so that other users and pages cannot guess it. `Host` is checked
against DNS rebinding, `Origin` and `Sec-Fetch-Site` against pages of other origins.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple, Protocol

HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # The address is a secret.
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""The headers of every answer."""


class Site(Protocol):
    """The hosts and origins of a page."""

    def origins(self, host: str) -> Collection[str]:
        """Return the origins of the page where `Host` is this; none if it is not served there."""
        ...


class Address(NamedTuple):
    """The address of the page."""

    port: int
    secret: str

    @property
    def path(self) -> str:
        """The path of the page; those of its parts begin with it."""
        return f"/{self.secret}/"

    @property
    def url(self) -> str:
        """The page's URL."""
        return f"http://127.0.0.1:{self.port}{self.path}"

    def origins(self, host: str) -> Collection[str]:
        """Return the origins of the page where `Host` is this; none if it is not served there."""
        hosts = f"127.0.0.1:{self.port}", f"localhost:{self.port}"
        return (f"http://{host}",) if host in hosts else ()


def refusal(site: Site, headers: Mapping[str, str], *, is_page: bool) -> str | None:
    """Return why a request is refused; None: it is answered.

    Args:
        site: Where the page is served.
        headers: Of the request; names are case-insensitive.
        is_page: It is for the page itself, to which a link from elsewhere may lead.
    """
    origins = site.origins(headers.get("Host", ""))
    if not origins:
        return "this address serves no such host"
    origin = headers.get("Origin")
    if origin is not None and origin not in origins:
        return "pages of other origins are not answered"
    if not is_page and headers.get("Sec-Fetch-Site", "none") not in {"same-origin", "none"}:
        return "pages of other sites are not answered"
    return None
