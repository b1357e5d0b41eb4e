import pytest

from certs import settings as module
from runtime.process.environment import SettingsError

POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


def read_settings(given):
    return module.read_settings({**POD, **given})


def test_a_pods_own_environment_is_enough():
    settings = read_settings({})
    assert settings.namespace == "linkwise-system"
    assert settings.terms.names[0] == "linkwise-webhook.linkwise-system.svc"
    assert (settings.terms.leaf_seconds, settings.terms.authority_seconds) == (
        30 * 86_400,
        365 * 86_400,
    )


def test_names_follow_the_namespace_and_others_can_be_added():
    names = read_settings(
        {"LINKWISE_NAMESPACE": "ns", "LINKWISE_EXTRA_NAMES": "127.0.0.1, localhost,"}
    ).terms.names
    assert names[1:] == (
        "linkwise-webhook",
        "linkwise-webhook.ns",
        "linkwise-webhook.ns.svc.cluster.local",
        "linkwise-webhook-standby.ns.svc",
        "linkwise-webhook-standby",
        "linkwise-webhook-standby.ns",
        "linkwise-webhook-standby.ns.svc.cluster.local",
        "127.0.0.1",
        "localhost",
    )


@pytest.mark.parametrize("text", ["x", "0", "-1", "nan", "inf", "1e9"])
def test_what_is_no_number_above_0_is_refused_with_the_variables_name(text):
    with pytest.raises(SettingsError, match=f"^LINKWISE_CA_DAYS={text}: write"):
        read_settings({"LINKWISE_CA_DAYS": text})


def test_a_name_that_no_certificate_can_have_is_refused():
    with pytest.raises(SettingsError, match=r"^LINKWISE_EXTRA_NAMES: bücher\.de is neither"):
        read_settings({"LINKWISE_EXTRA_NAMES": "localhost,bücher.de"})


def test_whom_to_ask_must_be_told_outside_a_pod():
    with pytest.raises(SettingsError, match=r"^LINKWISE_API_SERVER is not set"):
        module.read_settings({})


def test_a_leaf_lasts_a_third_of_its_ca_at_most():
    with pytest.raises(SettingsError, match="a third of LINKWISE_CA_DAYS"):
        read_settings({"LINKWISE_LEAF_DAYS": "31", "LINKWISE_CA_DAYS": "90"})


def test_a_level_that_logs_do_not_have_is_refused():
    with pytest.raises(SettingsError, match="write debug, info"):
        read_settings({"LINKWISE_LOG_LEVEL": "loud"})
