"""Read settings from environment variables `LINKWISE_<NAME>`, each with a default."""

from collections.abc import Container, Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

T = TypeVar("T")
_LAST_PORT = 65535
_LEVELS = ("debug", "info", "warning", "error")


class SettingsError(ValueError):
    """A variable has an invalid value. The text is one sentence that names the variable."""


def variable(name: str) -> str:
    """Return the name of the variable of a setting."""
    return f"LINKWISE_{name.upper()}"


@dataclass(frozen=True, slots=True)
class Environment:
    """Environment variables, read by the names of settings; an empty one counts as unset."""

    variables: Mapping[str, str]

    def read(
        self, settings: type[T], maxima: Mapping[str, float], positive: Container[str] = ()
    ) -> T:
        """Return the settings of a process.

        Args:
            settings: A dataclass with `api_server`, `log_level` and other texts, integers and
                floats; each default has the type of its field.
            maxima: The largest value of each number that is no port.
            positive: Numbers that must be above 0.

        Raises:
            SettingsError: A value is invalid.
        """
        self.level()
        self.api_server()
        values: dict[str, object] = {}
        for field in fields(settings):  # type: ignore[arg-type]
            default: Any = field.default
            if isinstance(default, str):
                values[field.name] = self.text(field.name, default)
            else:
                most = maxima.get(field.name, _LAST_PORT)
                number = self.number(field.name, default, most, positive=field.name in positive)
                values[field.name] = type(default)(number)
        return settings(**values)

    def text(self, name: str, default: str = "") -> str:
        """Return a setting as text."""
        return self.variables.get(variable(name)) or default

    def number(self, name: str, default: float, most: float, *, positive: bool) -> float:
        """Return a setting that is a number of at least 0, or above 0.

        Raises:
            SettingsError: It is no such number, or more than `most`.
        """
        text = self.text(name, str(default))
        try:
            number = float(text)
        except ValueError:
            number = -1
        if not 0 <= number <= most or (positive and not number):
            numbers = f"above 0, of {most:g} at most" if positive else f"from 0 to {most:g}"
            raise SettingsError(f"{variable(name)}={text}: write a number {numbers}")
        return number

    def level(self) -> str:
        """Return the lowest level that is logged.

        Raises:
            SettingsError: There is no such level.
        """
        level = self.text("log_level", "info")
        if level not in _LEVELS:
            raise SettingsError(f"{variable('log_level')}={level}: write {', '.join(_LEVELS)}")
        return level

    def api_server(self) -> str:
        """Return the address of the API server; empty: that of the pod's environment.

        Raises:
            SettingsError: None is set, and the process runs in no pod.
        """
        server = self.text("api_server")
        if not server and "KUBERNETES_SERVICE_HOST" not in self.variables:
            raise SettingsError(f"{variable('api_server')} is not set, and this is no pod: set it")
        return server
