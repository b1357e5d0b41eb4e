import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import JSON

from linkwise.cluster.allocations.foreign import read_foreign
from linkwise.cluster.allocations.gpus import Exact, GPUShare
from linkwise.cluster.allocations.record import RecordError
from linkwise.cluster.keys import (
    ARENA_GPU_GROUP,
    GPUSHARE_ALLOCATION,
    GPUSHARE_CORE,
    MEM_ASSIGNED,
    MEM_IDX,
    MEM_POD,
)


@pytest.mark.parametrize(
    ("annotations", "shares"),
    [
        ({}, ()),
        ({MEM_ASSIGNED: "false"}, ()),
        ({MEM_IDX: "2", MEM_POD: "5", MEM_ASSIGNED: "true"}, (GPUShare(2, mem=5),)),
        ({ARENA_GPU_GROUP: "3, 0"}, (GPUShare(3), GPUShare(0))),
        (
            {GPUSHARE_ALLOCATION: '{"0":{"1":2},"1":{"1":3,"0":4}}'},
            (GPUShare(0, mem=4), GPUShare(1, mem=5)),
        ),
        (
            {GPUSHARE_ALLOCATION: '{"0":{"1":2}}', GPUSHARE_CORE: '{"0":{"1":30}}', MEM_IDX: "7"},
            (GPUShare(1, mem=2, core=30),),
        ),
    ],
    ids=str,
)
def test_what_another_scheduler_gave_is_read(annotations, shares):
    assert read_foreign(annotations) == Exact(shares)


@pytest.mark.parametrize(
    ("annotations", "key"),
    [
        ({MEM_IDX: "-1", MEM_POD: "5"}, MEM_IDX),
        ({MEM_IDX: "GPU-a", MEM_POD: "5"}, MEM_IDX),
        ({MEM_IDX: "99999999999999999999", MEM_POD: "5"}, MEM_IDX),
        ({MEM_IDX: "0"}, MEM_POD),
        ({MEM_IDX: "0", MEM_POD: "0"}, MEM_POD),
        ({ARENA_GPU_GROUP: ""}, ARENA_GPU_GROUP),
        ({ARENA_GPU_GROUP: "0,0"}, ARENA_GPU_GROUP),
        ({ARENA_GPU_GROUP: ",".join(map(str, range(10_000)))}, ARENA_GPU_GROUP),
        ({GPUSHARE_ALLOCATION: "{}"}, GPUSHARE_ALLOCATION),
        ({GPUSHARE_ALLOCATION: "[]"}, GPUSHARE_ALLOCATION),
        ({GPUSHARE_ALLOCATION: '{"0":{"1":-2}}'}, GPUSHARE_ALLOCATION),
        ({GPUSHARE_ALLOCATION: '{"0":{"x":2}}'}, GPUSHARE_ALLOCATION),
        ({GPUSHARE_ALLOCATION: '{"0":{"0":4000},"1":{"0":4000}}'}, GPUSHARE_ALLOCATION),
        (
            {GPUSHARE_ALLOCATION: '{"0":{"0":2}}', GPUSHARE_CORE: '{"0":{"1":30}}'},
            GPUSHARE_ALLOCATION,
        ),
        ({GPUSHARE_ALLOCATION: '{"0":{"0":2}}', GPUSHARE_CORE: '{"0":{"0":105}}'}, GPUSHARE_CORE),
        ({GPUSHARE_ALLOCATION: '{"0":{"0":2}}', GPUSHARE_CORE: "30"}, GPUSHARE_CORE),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_malformed_key_is_an_error_that_names_it(annotations, key):
    with pytest.raises(RecordError, match=f"^{key}: "):
        read_foreign(annotations)


@pytest.mark.parametrize(
    ("annotations", "message"),
    [
        ({MEM_IDX: "", MEM_POD: "5"}, f"{MEM_IDX}: '' is no number from 0 to 15"),
        ({MEM_IDX: "GPU-a", MEM_POD: "5"}, f"{MEM_IDX}: 'GPU-a' is no number from 0 to 15"),
        ({MEM_IDX: "16", MEM_POD: "5"}, f"{MEM_IDX}: '16' is no number from 0 to 15"),
        ({MEM_IDX: "0", MEM_POD: "5Gi"}, f"{MEM_POD}: '5Gi' is no number from 1 to 4096"),
        ({MEM_IDX: "0"}, f"{MEM_POD}: missing beside {MEM_IDX}"),
        ({ARENA_GPU_GROUP: "0,"}, f"{ARENA_GPU_GROUP}: '' is no number from 0 to 15"),
        (
            {GPUSHARE_ALLOCATION: '{"0":{"a":2}}'},
            f"{GPUSHARE_ALLOCATION}: 'a' is no number from 0 to 15",
        ),
        (
            {GPUSHARE_ALLOCATION: ""},
            f"{GPUSHARE_ALLOCATION}: no JSON: Input data was truncated",
        ),
    ],
)
def test_message_names_the_invalid_annotation(annotations, message):
    with pytest.raises(RecordError) as caught:
        read_foreign(annotations)

    assert str(caught.value) == message


@given(
    st.dictionaries(
        st.sampled_from((GPUSHARE_ALLOCATION, GPUSHARE_CORE, MEM_IDX, MEM_POD, ARENA_GPU_GROUP)),
        st.text(max_size=20) | JSON.map(json.dumps),
    )
)
def test_any_annotations_are_read_or_give_a_clear_error(annotations):
    # Any other exception is a failure of this test.
    with suppress(RecordError):
        assert all(0 <= share.i < 16 for share in read_foreign(annotations).shares)
