"""Many gangs of mixed sizes that come and end at random, judged by what the API server wrote.

`make soak` submits more of them.
"""

from random import Random

import pytest
from controlplane.history import History
from controlplane.random_gangs import PASSING, Crowd, check
from controlplane.soak import often

GANGS = often(40, 200)
NODES = often(12, 64)
"""So few that gangs wait."""
COMMIT_DEADLINE = 60
"""As it is shipped [s]."""


@pytest.mark.timeout(1500)
@pytest.mark.usefixtures("placing")
def test_gangs_that_come_and_end_at_random_never_share_a_gpu_and_are_all_placed(
    pods, machines, policy
):
    policy(PASSING)
    nodes = tuple(node.name for node in machines(NODES))
    with History(pods.api) as history:
        # The same gangs in every run.
        crowd = Crowd(pods, history, nodes, Random(5))  # noqa: S311
        crowd.come_and_end(GANGS)
        crowd.run_out()
        check(history, COMMIT_DEADLINE)
    assert crowd.ended == crowd.shapes.keys()
    # The others were deleted while they waited.
    assert len(crowd.ran) > GANGS * 3 // 4
