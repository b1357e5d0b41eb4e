import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkwise.cluster.container_variables import ENV_MPS_MEMORY, ENV_MPS_THREADS
from linkwise.cluster.keys import GPU_MEM
from linkwise.cluster.requests.mps import is_tighter, limits
from linkwise.cluster.requests.request import ContainerRequest


@pytest.mark.parametrize(
    ("memory", "core", "cards", "variables"),
    [
        pytest.param(5, 30, 1, {ENV_MPS_THREADS: "30", ENV_MPS_MEMORY: "0=5120M"}, id="one-card"),
        pytest.param(
            10, 40, 2, {ENV_MPS_THREADS: "20", ENV_MPS_MEMORY: "0=5120M,1=5120M"}, id="two-cards"
        ),
        pytest.param(1, 0, 3, {ENV_MPS_MEMORY: "0=341M,1=341M,2=341M"}, id="rounded-down"),
        pytest.param(0, 20, 1, {ENV_MPS_THREADS: "20"}, id="no-memory"),
        pytest.param(2, 0, 0, {ENV_MPS_MEMORY: "0=2048M"}, id="cards-unreadable"),
        pytest.param(10**9, 0, 10**9, {}, id="more-cards-than-a-machine-has"),
    ],
)
def test_a_container_is_limited_to_its_part_of_each_card(memory, core, cards, variables):
    container = ContainerRequest(
        "a", 0, init=False, sidecar=False, resource=GPU_MEM, memory=memory, core=core
    )

    assert limits(container, cards) == variables


@pytest.mark.parametrize(
    ("name", "theirs", "tighter"),
    [
        (ENV_MPS_THREADS, "30", True),
        (ENV_MPS_THREADS, "12.5", True),
        (ENV_MPS_THREADS, "31", False),
        (ENV_MPS_THREADS, "0", False),
        (ENV_MPS_THREADS, "-1", False),
        (ENV_MPS_THREADS, "nan", False),
        (ENV_MPS_THREADS, "0\x1f", False),
        (ENV_MPS_THREADS, "", False),
        (ENV_MPS_MEMORY, "0=2G,1=2G", True),
        (ENV_MPS_MEMORY, "0=2048M, 1=1024MB", True),
        (ENV_MPS_MEMORY, "0=1,1=1", True),
        (ENV_MPS_MEMORY, "0=2G", False),
        (ENV_MPS_MEMORY, "0=2G,1=3G", False),
        (ENV_MPS_MEMORY, "lots", False),
        (ENV_MPS_MEMORY, "", False),
    ],
)
def test_a_users_limit_counts_only_when_it_is_readable_and_no_looser(name, theirs, tighter):
    ours = {ENV_MPS_THREADS: "30", ENV_MPS_MEMORY: "0=2048M,1=2048M"}

    assert is_tighter(name, theirs, ours[name]) is tighter


@given(text=st.text(max_size=12) | st.from_regex(r"\s*[0-9.=, ]{1,6}[KMG]?\s*", fullmatch=True))
def test_any_text_is_judged(text):
    assert is_tighter(ENV_MPS_THREADS, text, "5") in {True, False}
    assert is_tighter(ENV_MPS_MEMORY, text, "0=1M") in {True, False}
