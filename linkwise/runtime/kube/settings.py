"""Settings of a process for its client of the API server."""

from typing import Protocol


class APIServerSettings(Protocol):
    """Settings of a process that concern the API server."""

    @property
    def api_server(self) -> str:
        """URL; empty for the API server of the pod's cluster."""

    @property
    def api_token_file(self) -> str:
        """Used with `api_server`; empty for none."""

    @property
    def api_ca_file(self) -> str:
        """Used with `api_server`; empty for the CAs of the system."""
