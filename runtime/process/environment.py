"""What a process is told by its environment: variables `LINKWISE_<NAME>`, each with a default."""

from collections.abc import Mapping
from dataclasses import dataclass

_LEVELS = ("debug", "info", "warning", "error")


class SettingsError(ValueError):
    """A variable has a value that cannot be; one sentence that names it."""


def variable(name: str) -> str:
    """Return the variable of a setting."""
    return f"LINKWISE_{name.upper()}"


@dataclass(frozen=True, slots=True)
class Environment:
    """Reads settings by their names; a variable that is empty is as good as unset."""

    variables: Mapping[str, str]

    def text(self, name: str, default: str = "") -> str:
        """Return a setting as it is written."""
        return self.variables.get(variable(name)) or default

    def number(self, name: str, default: float, most: float) -> float:
        """Return a setting that is a number from 0 on.

        Raises:
            SettingsError: It is none, or more than `most`.
        """
        given = self.text(name, str(default))
        try:
            found = float(given)
        except ValueError:
            found = -1
        if not 0 <= found <= most:
            raise SettingsError(f"{variable(name)}={given}: write a number from 0 to {most:g}")
        return found

    def level(self) -> str:
        """Return the least that is logged.

        Raises:
            SettingsError: Logs have no such level.
        """
        level = self.text("log_level", "info")
        if level not in _LEVELS:
            raise SettingsError(f"{variable('log_level')}={level}: write {', '.join(_LEVELS)}")
        return level

    def api_server(self) -> str:
        """Return the API server that is named; empty for the one that a pod is given.

        Raises:
            SettingsError: None is named, and this is no pod.
        """
        server = self.text("api_server")
        if not server and "KUBERNETES_SERVICE_HOST" not in self.variables:
            raise SettingsError(f"{variable('api_server')} is not set, and this is no pod: set it")
        return server
