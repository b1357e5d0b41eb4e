"""Many gangs of mixed sizes that come and end at random, judged by what the API server wrote.

And one large gang. `make soak` submits more of them, and a larger one.
"""

from concurrent.futures import ThreadPoolExecutor
from random import Random
from time import monotonic

import pytest
from controlplane.gangs import make_gang, wait_until_held
from controlplane.history import History
from controlplane.random_gangs import PASSING, Crowd, check
from controlplane.soak import often

GANGS = often(40, 200)
NODES = often(12, 64)
"""So few that gangs wait."""
COMMIT_DEADLINE = 60
"""As it is shipped [s]."""
LARGE = often(256, 512)
"""Members of a large gang, each with one GPU."""


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


def test_a_large_gang_is_whole_after_few_writes_without_an_answer(pods, machines, placing):
    machines(LARGE // 8)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: make_gang(pods, "large", LARGE, 1, [i]), range(LARGE - 1)))
    make_gang(pods, "large", LARGE, 1, [LARGE - 1])
    created = monotonic()

    held = wait_until_held(pods, "large", LARGE)

    took = monotonic() - created
    lines = placing.process.log.read_text(errors="replace").splitlines()
    late = sum("Could not place pod" in line for line in lines)
    print(f"{LARGE} members: {took:.1f} s from the last creation, {late} writes without an answer")
    assert len({gpu for each in held.values() for gpu in each}) == LARGE
    # None on a machine without other work. One that stands still for two seconds costs 16.
    assert late < LARGE // 4
    assert not any("Evicting gang" in line for line in lines)
    pods.clear()
