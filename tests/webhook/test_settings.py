import pytest

from linkwise.runtime.process.settings import SettingsError
from webhook.settings import Settings

POD = {"KUBERNETES_SERVICE_HOST": "192.0.2.1"}


def test_environment_of_a_pod_is_enough():
    assert Settings.read(POD) == Settings()


def test_api_server_is_required_outside_a_pod():
    with pytest.raises(SettingsError, match="LINKWISE_API_SERVER is not set"):
        Settings.read({})


def test_every_setting_has_a_variable_of_its_name():
    texts = {
        "host": "127.0.0.1",
        "certificate": "/c",
        "key": "/k",
        "client_ca": "/cc",
        "scorer_token_file": "/st",
        "scorer_ca_file": "/sc",
        "api_server": "https://a",
        "api_token_file": "/t",
        "api_ca_file": "/ca",
        "log_level": "warning",
    }
    numbers = {"port": 1, "dry_run_port": 2, "probe_port": 3, "drain_seconds": 4}
    settings = Settings(**texts, **numbers)

    environment = {f"LINKWISE_{name.upper()}": str(v) for name, v in (texts | numbers).items()}

    assert Settings.read(environment) == settings
    assert texts.keys() | numbers.keys() == set(Settings.__dataclass_fields__)


def test_empty_variable_equals_an_unset_one():
    assert Settings.read({**POD, "LINKWISE_PORT": "", "LINKWISE_HOST": ""}) == Settings()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("LINKWISE_PORT", "http", id="no number"),
        pytest.param("LINKWISE_PORT", "65536", id="no port"),
        pytest.param("LINKWISE_DRAIN_SECONDS", "-1", id="negative"),
        pytest.param("LINKWISE_DRAIN_SECONDS", "nan", id="not a number"),
        pytest.param("LINKWISE_DRAIN_SECONDS", "61", id="longer than the grace period allows"),
        pytest.param("LINKWISE_LOG_LEVEL", "loud", id="level"),
    ],
)
def test_invalid_value_is_refused_naming_its_variable(name, value):
    with pytest.raises(SettingsError, match=f"^{name}={value}: write "):
        Settings.read({**POD, name: value})


def test_own_host_of_all_addresses_is_localhost():
    assert (Settings().own_host, Settings(host="192.0.2.1").own_host) == ("localhost", "192.0.2.1")
