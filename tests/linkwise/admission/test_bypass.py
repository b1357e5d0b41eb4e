"""A denied request is denied in every spelling and in every container."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.admission import outcome_of
from support.builders import a_container, a_pod

from linkwise.admission.decide.outcome import Verdict
from linkwise.cluster import keys

REFUSED = (
    {keys.GPU_MEM: 4, keys.GPU_CORE: 22},
    {keys.GPU_CORE: 20},
    {keys.GPU_MEM: 4, keys.GPU_WHOLE: 1},
    {keys.GPU_WHOLE: -1},
)
SPELLINGS = (
    lambda number: number,
    str,
    lambda number: f"{number * 1000}m",
    lambda number: f"{number}e0",
    lambda number: f"{number}.000",
    lambda number: f" {number} ",
)
spelled = st.sampled_from(REFUSED).flatmap(
    lambda limits: st.fixed_dictionaries(
        {
            name: st.sampled_from(SPELLINGS).map(lambda spell, number=number: spell(number))
            for name, number in limits.items()
        }
    )
)


@given(
    limits=spelled,
    before=st.integers(0, 3),
    init=st.booleans(),
    sidecar=st.booleans(),
    marks=st.dictionaries(st.sampled_from(["a", "A\u030a", keys.GANG]), st.just("x")),
)
def test_invalid_request_is_refused_in_every_spelling_and_container(
    limits, before, init, sidecar, marks
):
    asks = a_container(limits)
    if init and sidecar:
        asks["restartPolicy"] = "Always"
    harmless = [a_container({"cpu": 1}) for _ in range(before)]
    if init:
        pod = a_pod(containers=[a_container()], initContainers=[*harmless, asks])
    else:
        pod = a_pod(containers=[*harmless, asks])
    pod["metadata"]["annotations"] = marks

    assert outcome_of(pod).verdict is Verdict.DENIED


@pytest.mark.parametrize("limits", REFUSED)
def test_request_that_differs_from_its_limit_is_refused(limits):
    container = {"name": "c", "resources": {"requests": limits}}

    assert outcome_of(a_pod(containers=[container])).verdict is Verdict.DENIED
