import pytest

from linkwise.runtime.process.settings import SettingsError
from scorer.settings import Settings

POD = {"KUBERNETES_SERVICE_HOST": "192.0.2.1"}


def test_environment_of_a_pod_is_enough():
    assert Settings.read(POD) == Settings()


def test_api_server_is_required_outside_a_pod():
    with pytest.raises(SettingsError, match="LINKWISE_API_SERVER is not set"):
        Settings.read({})


def test_every_setting_has_a_variable_of_its_name():
    texts = {
        "host": "127.0.0.1",
        "address": "192.0.2.2",
        "certificate": "/c",
        "key": "/k",
        "api_server": "https://a",
        "api_token_file": "/t",
        "api_ca_file": "/ca",
        "log_level": "warning",
    }
    numbers = {
        "probe_port": 1,
        "inspect_port": 2,
        "extender_port": 7,
        "fit_port": 8,
        "write_seconds": 3,
        "lease_seconds": 6,
        "renew_seconds": 5,
        "retry_seconds": 4,
    }
    settings = Settings(**texts, **numbers)

    environment = {f"LINKWISE_{name.upper()}": str(v) for name, v in (texts | numbers).items()}

    assert Settings.read(environment) == settings
    assert texts.keys() | numbers.keys() == set(Settings.__dataclass_fields__)


def test_an_empty_variable_counts_as_unset():
    assert Settings.read({**POD, "LINKWISE_PROBE_PORT": "", "LINKWISE_HOST": ""}) == Settings()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("LINKWISE_PROBE_PORT", "http", id="not a number"),
        pytest.param("LINKWISE_INSPECT_PORT", "65536", id="not a port"),
        pytest.param("LINKWISE_WRITE_SECONDS", "-1", id="negative"),
        pytest.param("LINKWISE_LEASE_SECONDS", "nan", id="NaN"),
        pytest.param("LINKWISE_RENEW_SECONDS", "15", id="not below the lease"),
        pytest.param("LINKWISE_RENEW_SECONDS", "2", id="not above the retry"),
        pytest.param("LINKWISE_LOG_LEVEL", "loud", id="level"),
    ],
)
def test_an_invalid_value_is_refused_with_its_name(name, value):
    with pytest.raises(SettingsError, match=f"^{name}={value}: write "):
        Settings.read({**POD, name: value})


def test_attempts_without_a_pause_are_refused():
    with pytest.raises(SettingsError, match="LINKWISE_RETRY_SECONDS"):
        Settings.read({**POD, "LINKWISE_RETRY_SECONDS": "0"})


@pytest.mark.parametrize(
    ("values", "address"),
    [
        ({}, ""),
        ({"host": "127.0.0.1"}, "127.0.0.1:8445"),
        ({"host": "127.0.0.1", "address": "192.0.2.2"}, "192.0.2.2:8445"),
        ({"address": "2001:db8::1", "fit_port": 1}, "[2001:db8::1]:1"),
        ({"host": "0.0.0.0"}, ""),  # noqa: S104
        ({"host": "::"}, ""),
        ({"host": "0:0::0"}, ""),
        ({"host": "0.0.0.0", "address": "192.0.2.2"}, "192.0.2.2:8445"),  # noqa: S104
        ({"host": "scorer.example"}, "scorer.example:8445"),
    ],
)
def test_the_published_address_is_one_that_clients_can_use(values, address):
    assert Settings(**values).fit_address == address


def test_the_default_lease_timings_are_those_of_client_go():
    settings = Settings()
    # client-go's LeaseDuration, RenewDeadline and RetryPeriod.
    assert (settings.lease_seconds, settings.renew_seconds, settings.retry_seconds) == (15, 10, 2)
