from collections.abc import Callable

import pytest
from support.dashboard import CLUSTER

from linkwise.dashboard.moment import Moment
from linkwise.views.live.kubeconfig import Access
from linkwise.views.live.load import load_cluster


@pytest.fixture
def moment(write) -> Callable[..., Moment]:
    """Makes a moment of a cluster with some pods."""

    def make(*pods: str, at: float = 0.0, cluster: str = CLUSTER) -> Moment:
        file = write("cluster.yaml", cluster + "".join(pods))
        return Moment(load_cluster(Access(), str(file)), at)

    return make
