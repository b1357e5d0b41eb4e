import pytest
from controlplane.binaries import Binaries, MissingError, chart_binaries


@pytest.fixture(scope="session")
def programs() -> Binaries:
    """Helm and kubeconform."""
    try:
        return chart_binaries(print)
    except MissingError as missing:
        pytest.skip(str(missing))
