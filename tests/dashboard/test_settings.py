import pytest

from dashboard.settings import Settings
from linkwise.runtime.process.settings import SettingsError

POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


def test_the_page_has_the_names_of_its_service_and_those_that_are_added():
    settings = Settings.read({**POD, "LINKWISE_HOSTS": "Gpus.example, wall.example,"})

    assert settings.names == {
        "linkwise-dashboard.linkwise-system.svc",
        "linkwise-dashboard.linkwise-system.svc.cluster.local",
        "gpus.example",
        "wall.example",
    }


def test_a_port_beyond_all_ports_is_refused():
    with pytest.raises(SettingsError, match="LINKWISE_LOCAL_PORT=70000"):
        Settings.read({**POD, "LINKWISE_LOCAL_PORT": "70000"})
