import pytest

from certs import settings as module
from linkwise.runtime.process.settings import SettingsError

POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


def read_settings(variables):
    return module.Settings.read({**POD, **variables})


def test_environment_of_a_pod_is_enough():
    settings = read_settings({})
    assert settings.namespace == "linkwise-system"
    assert settings.mode is module.Mode.SELF
    assert [server.names[0] for server in settings.issuance.servers] == [
        "linkwise-webhook.linkwise-system.svc",
        "linkwise-webhook-standby.linkwise-system.svc",
        "linkwise-scorer.linkwise-system.svc",
    ]
    assert settings.issuance.propagation == 600
    assert (settings.issuance.leaf_duration, settings.issuance.ca_duration) == (
        30 * 86_400,
        365 * 86_400,
    )


def test_names_have_the_namespace_and_the_extra_names():
    webhook, standby, _ = read_settings(
        {"LINKWISE_NAMESPACE": "ns", "LINKWISE_EXTRA_NAMES": "127.0.0.1, localhost,"}
    ).issuance.servers
    assert webhook.names[1:] == (
        "linkwise-webhook",
        "linkwise-webhook.ns",
        "linkwise-webhook.ns.svc.cluster.local",
        "127.0.0.1",
        "localhost",
    )
    assert standby.names[0] == "linkwise-webhook-standby.ns.svc"


@pytest.mark.parametrize("text", ["x", "0", "-1", "nan", "inf", "1e9"])
def test_number_that_is_not_positive_is_refused_naming_its_variable(text):
    with pytest.raises(SettingsError, match=f"^LINKWISE_CA_DAYS={text}: write"):
        read_settings({"LINKWISE_CA_DAYS": text})


def test_name_that_no_certificate_can_have_is_refused():
    with pytest.raises(SettingsError, match=r"^LINKWISE_EXTRA_NAMES: bücher\.de is neither"):
        read_settings({"LINKWISE_EXTRA_NAMES": "localhost,bücher.de"})


def test_api_server_is_required_outside_a_pod():
    with pytest.raises(SettingsError, match=r"^LINKWISE_API_SERVER is not set"):
        module.Settings.read({})


def test_leaf_duration_above_a_third_of_the_ca_is_refused():
    with pytest.raises(SettingsError, match="a third of LINKWISE_CA_DAYS"):
        read_settings({"LINKWISE_LEAF_DAYS": "31", "LINKWISE_CA_DAYS": "90"})


def test_unknown_log_level_is_refused():
    with pytest.raises(SettingsError, match="write debug, info"):
        read_settings({"LINKWISE_LOG_LEVEL": "loud"})


@pytest.mark.parametrize("text", ["cert-manager", "provided"])
def test_mode_is_read(text):
    assert read_settings({"LINKWISE_CERTIFICATES": text}).mode == text


def test_unknown_mode_is_refused_with_those_that_exist():
    with pytest.raises(SettingsError, match=r"=vault: write self, cert-manager, provided$"):
        read_settings({"LINKWISE_CERTIFICATES": "vault"})


def test_dashboard_has_a_certificate_where_it_is_installed():
    server = read_settings({"LINKWISE_DASHBOARD": "on"}).issuance.servers[-1]

    assert server.name == "dashboard"
    assert server.names[0] == "linkwise-dashboard.linkwise-system.svc"
    with pytest.raises(SettingsError, match="LINKWISE_DASHBOARD=yes: write on or off"):
        read_settings({"LINKWISE_DASHBOARD": "yes"})


def test_wait_above_a_third_of_a_leaf_is_refused():
    with pytest.raises(SettingsError, match="a third of LINKWISE_LEAF_DAYS"):
        read_settings({"LINKWISE_LEAF_DAYS": "0.01"})
