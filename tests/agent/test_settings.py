from pathlib import Path

import pytest

from agent.settings import Settings
from linkwise.runtime.process.settings import SettingsError

POD = {"KUBERNETES_SERVICE_HOST": "192.0.2.1", "LINKWISE_NODE_NAME": "node-a"}


def test_a_pod_needs_only_the_name_of_its_node():
    settings = Settings.read(POD)
    assert (settings.node_name, settings.pod_uid) == ("node-a", "")
    assert settings.paths.device_plugins == Path("/var/lib/kubelet/device-plugins")
    assert settings.paths.nvidia_cdi == (Path("/etc/cdi"), Path("/var/run/cdi"))
    assert settings.read_seconds == 30


def test_folders_of_the_node_lie_below_its_root():
    settings = Settings.read(POD | {"LINKWISE_HOST_ROOT": "/host"})
    assert settings.paths.nvidia_cdi == (Path("/host/etc/cdi"), Path("/host/var/run/cdi"))
    assert settings.paths.cdi == Path("/var/run/cdi")
    assert settings.paths.kubelet == Path("/host/var/lib/kubelet")


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"LINKWISE_NODE_NAME": ""}, "LINKWISE_NODE_NAME"),
        ({"LINKWISE_READ_SECONDS": "0"}, "LINKWISE_READ_SECONDS"),
        ({"LINKWISE_READ_SECONDS": "soon"}, "LINKWISE_READ_SECONDS"),
        ({"LINKWISE_PROBE_PORT": "70000"}, "LINKWISE_PROBE_PORT"),
    ],
    ids=["no node", "no interval", "not a number", "no port"],
)
def test_an_invalid_variable_is_named(variables, named):
    with pytest.raises(SettingsError, match=named):
        Settings.read(POD | variables)
