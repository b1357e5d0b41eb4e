import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from linkwise.runtime.process.settings import ProcessSettings, SettingsError, setting

REPOSITORY = Path(__file__).parents[4]
POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(ProcessSettings):
    name: str = setting("", "a name")
    count: int = setting(3, "how many", most=10)
    wait_seconds: float = setting(0.5, "a wait", most=60, positive=True)
    colour: str = setting("red", "red or green", shown="that of blood", choices=("red", "green"))


def test_variables_are_read_as_they_are_declared():
    variables = {"LINKWISE_COUNT": "0", "LINKWISE_WAIT_SECONDS": "2", "LINKWISE_COLOUR": "green"}

    settings = Settings.read(POD | variables)

    assert settings == Settings(count=0, wait_seconds=2.0, colour="green")
    assert isinstance(settings.count, int)


def test_empty_variable_has_its_default():
    assert Settings.read(POD | {"LINKWISE_COUNT": "", "LINKWISE_NAME": ""}) == Settings()


@pytest.mark.parametrize(
    ("name", "value", "numbers"),
    [
        ("COUNT", "x", "write a number from 0 to 10"),
        ("COUNT", "11", "write a number from 0 to 10"),
        ("COUNT", "nan", "write a number from 0 to 10"),
        ("WAIT_SECONDS", "0", "write a number above 0, of 60 at most"),
        ("COLOUR", "blue", "write red, green"),
        ("LOG_LEVEL", "INFO", "write debug, info, warning, error"),
    ],
)
def test_invalid_value_is_rejected(name, value, numbers):
    with pytest.raises(SettingsError, match=rf"^LINKWISE_{name}={value}: {numbers}$"):
        Settings.read(POD | {f"LINKWISE_{name}": value})


def test_process_outside_of_a_pod_needs_an_address():
    with pytest.raises(SettingsError, match=r"^LINKWISE_API_SERVER is not set, and this is no pod"):
        Settings.read({})

    assert Settings.read({"LINKWISE_API_SERVER": "https://[::1]"}).api_server == "https://[::1]"


def test_help_has_the_declarations_and_those_of_all_processes_last():
    lines = Settings.help("colours").splitlines()

    assert lines[0] == "Usage: python -m colours"
    assert [re.split("  +", line.strip()) for line in lines[4:]] == [
        ["VARIABLE", "DEFAULT", "MEANING"],
        ["LINKWISE_NAME", "none", "a name"],
        ["LINKWISE_COUNT", "3", "how many"],
        ["LINKWISE_WAIT_SECONDS", "0.5", "a wait"],
        ["LINKWISE_COLOUR", "that of blood", "red or green"],
        ["LINKWISE_API_SERVER", "the pod's own", "outside a cluster: its address"],
        ["LINKWISE_API_TOKEN_FILE", "none", "read again for every call"],
        ["LINKWISE_API_CA_FILE", "the system's", "CA of the API server's certificate"],
        ["LINKWISE_LOG_LEVEL", "info", "debug, info, warning, error"],
    ]


@pytest.mark.parametrize("optimised", [[], ["-OO"]], ids=["", "without docstrings"])
@pytest.mark.parametrize(
    "server", ["webhook", "scorer", "certs", "agent", "dashboard", "scorer.withdraw"]
)
def test_help_of_a_server_lists_its_settings(server, optimised):
    documented = (REPOSITORY / "docs/operations/run.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| `(LINKWISE_\w+)` \| .* \| ([\w, ]+) \| .* \|$", documented, re.MULTILINE
    )
    expected = {name for name, servers in rows if {server, "all"} & set(servers.split(", "))}
    if server == "scorer.withdraw":
        expected -= {"LINKWISE_HOST", "LINKWISE_PROBE_PORT"}

    ran = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, *optimised, "-m", server, "--help"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )

    assert ran.stdout.startswith(f"Usage: python -m {server}\n")
    assert set(re.findall(r"^  (LINKWISE_\w+)  ", ran.stdout, re.MULTILINE)) == expected
    assert ran.stderr == ""
