"""Settings of processes, read from environment variables `LINKWISE_<NAME>`.

A process declares each setting once, as a field of its `ProcessSettings`. The environment is read
by these declarations, and `--help` prints them.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self, TypeVar

T = TypeVar("T", str, int, float)
_DECLARATION = "setting"
_LAST_PORT = 65535
_LEVELS = ("debug", "info", "warning", "error")


class SettingsError(ValueError):
    """A variable has an invalid value. The text is one sentence that names the variable."""


def variable(name: str) -> str:
    """Return the name of the variable of a setting."""
    return f"LINKWISE_{name.upper()}"


def setting(
    default: T,
    meaning: str,
    *,
    shown: str = "",
    most: float = _LAST_PORT,
    positive: bool = False,
    choices: Iterable[str] = (),
) -> T:
    """Declare a field of a `ProcessSettings`.

    Args:
        default: Its type is that of the field.
        meaning: For users, in `--help`; with the unit, if the name has none.
        shown: For users, in place of the default.
        most: Largest value of a number.
        positive: A number must be above 0; otherwise it may be 0.
        choices: All valid texts; none: any text.
    """
    text = str(default).removesuffix(".0") or "none"
    declaration = Declaration(default, meaning, shown or text, most, positive, tuple(choices))
    return field(default=default, metadata={_DECLARATION: declaration})


@dataclass(frozen=True, slots=True)
class Declaration:
    """A setting as it was declared; `shown` is its default for users."""

    default: str | float
    meaning: str
    shown: str
    most: float
    positive: bool
    choices: tuple[str, ...]

    def parse(self, name: str, text: str) -> str | float:
        """Return the value of a variable.

        Raises:
            SettingsError: The text is not valid.
        """
        if not isinstance(self.default, str):
            return type(self.default)(self._number(name, text))
        if self.choices and text not in self.choices:
            raise SettingsError(f"{name}={text}: write {', '.join(self.choices)}")
        return text

    def _number(self, name: str, text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = -1
        if not 0 <= number <= self.most or (self.positive and not number):
            most = f"{self.most:g}"
            numbers = f"above 0, of {most} at most" if self.positive else f"from 0 to {most}"
            raise SettingsError(f"{name}={text}: write a number {numbers}")
        return number


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSettings:
    """The settings of each process, and the base of those of one."""

    # Without a server, token and CA are those of the pod.
    api_server: str = setting("", "outside a cluster: its address", shown="the pod's own")
    api_token_file: str = setting("", "read again for every call")
    api_ca_file: str = setting("", "CA of the API server's certificate", shown="the system's")
    log_level: str = setting("info", ", ".join(_LEVELS), choices=_LEVELS)

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Self:
        """Return the settings; an unset or empty variable has its default.

        Raises:
            SettingsError: A value is invalid, or the API server is unknown.
        """
        values: dict[str, Any] = {
            name.removeprefix("LINKWISE_").lower(): declaration.parse(name, text)
            for name, declaration in cls.declarations()
            if (text := environment.get(name))
        }
        settings = cls(**values)
        if not settings.api_server and "KUBERNETES_SERVICE_HOST" not in environment:
            raise SettingsError(f"{variable('api_server')} is not set, and this is no pod: set it")
        settings.check()
        return settings

    def check(self) -> None:
        """Check the values that depend on each other; a process overrides it.

        Raises:
            SettingsError: They cannot be used together.
        """

    @classmethod
    def declarations(cls) -> Iterator[tuple[str, Declaration]]:
        """Yield the variable and declaration of each setting, those of all processes last."""
        common = {each.name for each in fields(ProcessSettings)}
        for each in sorted(fields(cls), key=lambda each: each.name in common):
            yield variable(each.name), each.metadata[_DECLARATION]

    @classmethod
    def help(cls, package: str) -> str:
        """Return the help of `python -m <package>`."""
        rows = [("VARIABLE", "DEFAULT", "MEANING")]
        rows += [(name, each.shown, each.meaning) for name, each in cls.declarations()]
        widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
        lines = (f"  {a:{widths[0]}}  {b:{widths[1]}}  {c}" for a, b, c in rows)
        return (
            f"Usage: python -m {package}\n\n"
            "Runs until SIGTERM or SIGINT. Its settings are environment variables; an unset or "
            "empty one has its default.\n\n" + "\n".join(lines) + "\n"
        )
