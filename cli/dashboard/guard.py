"""Decides which requests the server of the page answers. Pure.

The address contains a secret, so that other users and pages cannot guess it. `Host` is checked
against DNS rebinding, `Origin` and `Sec-Fetch-Site` against pages of other origins.
"""

from collections.abc import Mapping
from typing import NamedTuple

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

    @property
    def hosts(self) -> frozenset[str]:
        """The values of `Host` under which it is served."""
        return frozenset((f"127.0.0.1:{self.port}", f"localhost:{self.port}"))


def refusal(address: Address, headers: Mapping[str, str], *, is_page: bool) -> str | None:
    """Return why a request is refused; None: it is answered.

    Args:
        address: The address of the page.
        headers: Of the request; names are case-insensitive.
        is_page: It is for the page itself, to which a link from elsewhere may lead.
    """
    host = headers.get("Host", "")
    if host not in address.hosts:
        return "this address serves no such host"
    origin = headers.get("Origin")
    if origin is not None and origin != f"http://{host}":
        return "pages of other origins are not answered"
    if not is_page and headers.get("Sec-Fetch-Site", "none") not in {"same-origin", "none"}:
        return "pages of other sites are not answered"
    return None
