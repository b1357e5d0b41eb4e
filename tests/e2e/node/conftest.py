"""A real node beside the control plane: containerd, kubelet and containers."""

import pytest


@pytest.fixture(scope="session")
def plane(plane_of_real_nodes):
    return plane_of_real_nodes
