import json
from collections import Counter
from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import JSON

from linkwise.cluster.allocations.foreign import read_foreign
from linkwise.cluster.allocations.gpus import Counted, Exact, GPUShare
from linkwise.cluster.allocations.record import (
    Allocation,
    Isolation,
    RecordError,
    divide_gpus,
    format_cdi_devices,
    format_record,
    parse_record,
)
from linkwise.cluster.keys import (
    ALLOCATION,
    ARENA_GPU_GROUP,
    ARENA_GPU_VISIBLE,
    GPUSHARE_ALLOCATION,
    GPUSHARE_CORE,
    ISOLATION,
    MEM_ASSIGNED,
    MEM_ASSUME_TIME,
    MEM_DEV,
    MEM_IDX,
    MEM_POD,
    NVIDIA_CDI_CONTAINER,
    NVIDIA_GPU,
    TERM,
    VISIBLE_DEVICES,
    VISIBLE_DEVICES_OF,
)
from linkwise.cluster.requests.request import ContainerRequest, Family, Request

NOW = 1_790_000_000_123_456_789


def ask(
    container: str, index: int = 0, *, init: bool = False, sidecar: bool = False, **amounts: int
) -> ContainerRequest:
    return ContainerRequest(container, index, init, sidecar=sidecar, resource="", **amounts)


def share(memory: int, core: int = 0, cards: int = 1) -> Request:
    return Request(Family.SHARE, cards, memory, core, (ask("c0", memory=memory, core=core),))


def whole(gpus: int, family: Family = Family.WHOLE) -> Request:
    return Request(family, gpus, containers=(ask("c0", gpus=gpus),))


def written(
    request: Request,
    *gpus: GPUShare,
    card: int | None = 15,
    isolation: Isolation = Isolation.NONE,
) -> dict[str, str]:
    return format_record(
        Allocation("n1", Exact(gpus)),
        request=request,
        term=7,
        isolation=isolation,
        now_ns=NOW,
        node_card_memory=card,
    )


names = st.text(min_size=1, max_size=9)
indices = st.integers(0, 15)


@st.composite
def allocations(draw: st.DrawFn) -> tuple[Allocation, Request]:
    family = draw(st.sampled_from((Family.SHARE, Family.WHOLE, Family.REPLICA)))
    where = st.lists(indices, min_size=1, max_size=8, unique=family is not Family.REPLICA)
    memory, core = draw(st.integers(1, 4096)), draw(st.none() | st.integers(1, 100))
    is_share = family is Family.SHARE
    gpus = tuple(
        GPUShare(
            i, draw(st.none() | names), memory if is_share else None, core if is_share else None
        )
        for i in draw(where)
    )
    n = len(gpus)
    request = share(n * memory, n * (core or 0), n) if is_share else whole(n, family)
    bandwidth = draw(st.none() | st.floats(0, 1e4))
    optional = st.none() | names
    return Allocation(draw(names), Exact(gpus), draw(optional), bandwidth, draw(optional)), request


@given(allocations(), st.integers(0, 2**31), st.sampled_from(Isolation))
def test_record_is_read_back_as_written(case, term, isolation):
    allocation, request = case

    annotations = format_record(
        allocation,
        request=request,
        term=term,
        isolation=isolation,
        now_ns=NOW,
        node_card_memory=None,
    )

    assert parse_record(annotations) == allocation
    assert all(type(value) is str for value in annotations.values())


@given(allocations())
def test_records_for_other_schedulers_have_the_same_content(case):
    allocation, request = case
    annotations = written(request, *allocation.gpus.shares)

    foreign = read_foreign(annotations)

    if request.family is Family.REPLICA:
        assert not foreign
    else:
        plain = [GPUShare(gpu.i, None, gpu.mem, gpu.core) for gpu in allocation.gpus.shares]
        assert sorted(foreign.shares, key=lambda gpu: gpu.i) == sorted(plain, key=lambda gpu: gpu.i)


def test_the_record_reads_as_the_protocol_shows_it():
    allocation = Allocation(
        "n1", Exact((GPUShare(0, "GPU-a", 4, 30), GPUShare(3, None, 4, 30))), "8xV100", 55.2, "p-1"
    )

    annotations = format_record(
        allocation,
        request=share(8, 60, cards=2),
        term=3,
        isolation=Isolation.MPS,
        now_ns=NOW,
        node_card_memory=15,
    )

    assert json.loads(annotations[ALLOCATION]) == {
        "v": 1,
        "node": "n1",
        "gpus": [{"i": 0, "uuid": "GPU-a", "mem": 4, "core": 30}, {"i": 3, "mem": 4, "core": 30}],
        "class": "8xV100",
        "bandwidth": 55.2,
        "plan": "p-1",
    }


def test_whole_gpus_are_written_for_people_and_arena():
    annotations = written(whole(2), GPUShare(3, "GPU-d"), GPUShare(0, "GPU-a"))
    del annotations[ALLOCATION]

    assert annotations == {
        VISIBLE_DEVICES: "GPU-d,GPU-a",
        TERM: "7",
        ISOLATION: "none",
        ARENA_GPU_GROUP: "3,0",
        ARENA_GPU_VISIBLE: "3,0",
    }


def test_pod_with_a_claim_has_no_annotations_for_its_containers():
    request = msgspec.structs.replace(whole(2), by_claim=True)
    annotations = written(request, GPUShare(3, "GPU-d"), GPUShare(0, "GPU-a"))

    assert annotations.keys() == {ALLOCATION, TERM, ISOLATION}


def test_a_share_of_one_card_is_written_for_gpushare_and_ack():
    annotations = written(share(5), GPUShare(2, mem=5), isolation=Isolation.CGPU)
    del annotations[ALLOCATION]

    assert annotations == {
        VISIBLE_DEVICES: "2",
        TERM: "7",
        ISOLATION: "cgpu",
        MEM_IDX: "2",
        MEM_POD: "5",
        MEM_DEV: "15",
        MEM_ASSIGNED: "false",
        MEM_ASSUME_TIME: str(NOW),
        GPUSHARE_ALLOCATION: '{"0":{"2":5}}',
    }


def test_a_share_of_several_cards_has_no_single_index():
    cards = (GPUShare(1, mem=4, core=30), GPUShare(2, mem=4, core=30))

    annotations = written(share(8, 60, cards=2), *cards, card=None)

    assert MEM_IDX not in annotations
    assert MEM_DEV not in annotations
    assert annotations[MEM_POD] == "8"
    assert annotations[GPUSHARE_ALLOCATION] == '{"0":{"1":4,"2":4}}'
    assert annotations[GPUSHARE_CORE] == '{"0":{"1":30,"2":30}}'


def test_replicas_are_written_for_people_alone():
    annotations = written(whole(3, Family.REPLICA), GPUShare(0), GPUShare(1), GPUShare(0))

    assert annotations.keys() == {ALLOCATION, VISIBLE_DEVICES, TERM, ISOLATION}
    assert annotations[VISIBLE_DEVICES] == "0,1"


def test_devices_are_indices_as_soon_as_one_uuid_is_unknown():
    annotations = written(whole(2), GPUShare(3, "GPU-d"), GPUShare(0))

    assert annotations[VISIBLE_DEVICES] == "3,0"


def test_containers_that_run_together_see_different_gpus():
    asks = (
        ask("a", 0, gpus=2),
        ask("b", 1, gpus=1),
        ask("fetch", 0, init=True, gpus=2),
        ask("proxy", 1, init=True, sidecar=True, gpus=1),
    )
    gpus = tuple(GPUShare(i) for i in (4, 7, 1, 2))

    annotations = written(Request(Family.WHOLE, 4, containers=asks), *gpus)

    assert VISIBLE_DEVICES not in annotations
    assert {
        name: annotations[f"{VISIBLE_DEVICES_OF}{name}"] for name in ("a", "b", "fetch", "proxy")
    } == {
        "a": "4,7",
        "b": "1",
        "fetch": "4,7",
        "proxy": "2",
    }


@pytest.mark.parametrize(
    ("gpus", "a", "b"),
    [
        pytest.param(
            (GPUShare(4, "GPU-x"), GPUShare(7, "GPU-y"), GPUShare(1, "GPU-z")),
            "nvidia.com/gpu=GPU-x,nvidia.com/gpu=GPU-y",
            "nvidia.com/gpu=GPU-z",
            id="uuids",
        ),
        pytest.param(
            (GPUShare(4), GPUShare(7), GPUShare(1)),
            "nvidia.com/gpu=4,nvidia.com/gpu=7",
            "nvidia.com/gpu=1",
            id="indices",
        ),
    ],
)
def test_cdi_devices_are_written_for_each_container_with_gpus(gpus, a, b):
    request = Request(Family.WHOLE, 3, containers=(ask("a", 0, gpus=2), ask("b", 2, gpus=1)))

    assert format_cdi_devices(gpus, request) == {
        f"{NVIDIA_CDI_CONTAINER}a": a,
        f"{NVIDIA_CDI_CONTAINER}b": b,
    }


def test_two_replicas_of_a_gpu_are_one_cdi_device():
    gpu = GPUShare(3, "GPU-a")

    assert format_cdi_devices((gpu, gpu), whole(2, Family.REPLICA)) == {
        f"{NVIDIA_CDI_CONTAINER}c0": "nvidia.com/gpu=GPU-a"
    }


def test_containers_of_a_share_see_all_its_cards():
    asks = (ask("a", 0, memory=1), ask("b", 1, memory=3))
    cards = (GPUShare(0, mem=2), GPUShare(5, mem=2))

    annotations = written(Request(Family.SHARE, 2, 4, 0, asks), *cards)

    assert annotations[f"{VISIBLE_DEVICES_OF}a"] == "0,5"
    assert annotations[f"{VISIBLE_DEVICES_OF}b"] == "0,5"
    assert annotations[GPUSHARE_ALLOCATION] == '{"0":{"0":1},"1":{"0":1,"5":2}}'


def test_an_init_container_has_no_gpu_of_a_sidecar_that_started_before_it():
    asks = (
        ask("train", 0, gpus=1),
        ask("proxy", 0, init=True, sidecar=True, gpus=1),
        ask("fetch", 1, init=True, gpus=2),
        ask("second", 2, init=True, sidecar=True, gpus=1),
    )
    request = Request(Family.WHOLE, 3, containers=asks)

    assert divide_gpus(tuple(map(GPUShare, range(3))), request) == [
        (GPUShare(0),),
        (GPUShare(1),),
        (GPUShare(0), GPUShare(2)),
        (GPUShare(2),),
    ]


def test_an_init_container_is_not_counted_among_the_app_containers():
    asks = (ask("a", 0, memory=2), ask("fetch", 0, init=True, memory=4))

    annotations = written(Request(Family.SHARE, 1, 4, 0, asks), GPUShare(3, mem=4))

    assert annotations[GPUSHARE_ALLOCATION] == '{"0":{"3":2}}'
    assert annotations[f"{VISIBLE_DEVICES_OF}fetch"] == "3"


@given(st.integers(1, 5), st.lists(st.integers(1, 20), min_size=1, max_size=4), st.data())
def test_every_card_gives_the_same_whatever_the_containers_ask(cards, amounts, data):
    amounts[-1] += -sum(amounts) % cards
    asks = tuple(ask(f"c{i}", i, memory=amount) for i, amount in enumerate(amounts))
    each = sum(amounts) // cards
    where = data.draw(st.lists(indices, min_size=cards, max_size=cards, unique=True))

    annotations = written(
        Request(Family.SHARE, cards, sum(amounts), 0, asks), *(GPUShare(i, mem=each) for i in where)
    )
    table = json.loads(annotations[GPUSHARE_ALLOCATION])

    by_card = sum((Counter(given) for given in table.values()), Counter())
    assert by_card == {str(i): each for i in where}
    assert [sum(table[str(i)].values()) for i in range(len(amounts))] == amounts


def test_a_pod_without_a_record_has_none():
    assert parse_record({TERM: "1"}) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "truncated"),
        ("null", "Expected `object`"),
        ('{"x":' + "[" * 100_000, "recursion"),
        ('{"node":"n","gpus":[{"i":0}]}', "missing required field `v`"),
        ('{"v":2,"node":"n","gpus":[{"i":0}]}', r"\$.v"),
        ('{"v":1,"node":"","gpus":[{"i":0}]}', r"\$.node"),
        ('{"v":1,"node":"n","gpus":[]}', r"\$.gpus"),
        ('{"v":1,"node":"n","gpus":[{"i":-1}]}', r"\$.gpus\[0\].i"),
        ('{"v":1,"node":"n","gpus":[{"i":16}]}', r"\$.gpus\[0\].i"),
        ('{"v":1,"node":"n","gpus":[{"i":1e99}]}', r"\$.gpus\[0\].i"),
        ('{"v":1,"node":"n","gpus":[{"i":0,"mem":0}]}', r"\$.gpus\[0\].mem"),
        ('{"v":1,"node":"n","gpus":[{"i":0,"mem":4097}]}', r"\$.gpus\[0\].mem"),
        ('{"v":1,"node":"n","gpus":[{"i":0,"mem":1,"core":101}]}', r"\$.gpus\[0\].core"),
        ('{"v":1,"node":"n","gpus":[{"i":0,"core":50}]}', "compute without memory"),
        ('{"v":1,"node":"n","gpus":[{"i":0,"mem":1},{"i":0,"mem":1}]}', "occurs twice"),
        ('{"v":1,"node":"n","gpus":[{"i":0}],"bandwidth":-1}', r"\$.bandwidth"),
        ('{"v":1,"node":"n","gpus":[{"i":0}],"bandwidth":1e999}', "bandwidth"),
    ],
    ids=lambda text: text[:60],
)
def test_a_malformed_record_is_an_error_that_says_what_and_where(text, message):
    with pytest.raises(RecordError, match=f"(?i)^{ALLOCATION}: .*{message}"):
        parse_record({ALLOCATION: text})


def test_fields_of_a_later_version_are_passed_by():
    text = '{"v":1,"node":"n","gpus":[{"i":0,"rail":2}],"future":true}'

    assert parse_record({ALLOCATION: text}) == Allocation("n", Exact((GPUShare(0),)))


@given(st.text(max_size=30) | JSON.map(json.dumps))
def test_any_text_is_a_record_or_a_clear_error(text):
    # Any other exception is a failure of this test.
    with suppress(RecordError):
        record = parse_record({ALLOCATION: text})
        assert record is not None
        assert record.gpus


def counted(count: int = 2) -> dict[str, str]:
    return format_record(
        Allocation("n1", Counted(NVIDIA_GPU, count), "mesh", 137.0, "7-1"),
        request=whole(count),
        term=7,
        isolation=Isolation.NONE,
        now_ns=NOW,
        node_card_memory=None,
    )


def test_record_of_a_counted_node_has_null_gpus_and_a_count():
    assert json.loads(counted()[ALLOCATION]) == {
        "v": 1,
        "node": "n1",
        "gpus": None,
        "count": 2,
        "class": "mesh",
        "bandwidth": 137.0,
        "plan": "7-1",
    }


def test_record_of_a_counted_node_names_no_devices():
    assert counted().keys() == {ALLOCATION, TERM, ISOLATION}


def test_record_of_a_counted_node_is_read_as_written():
    gpus = Counted(NVIDIA_GPU, 8)
    assert parse_record(counted(8)) == Allocation("n1", gpus, "mesh", 137.0, "7-1")


@pytest.mark.parametrize(
    "record",
    [
        pytest.param('{"v":1,"node":"n1","gpus":null}', id="neither"),
        pytest.param('{"v":1,"node":"n1","gpus":[{"i":0}],"count":1}', id="both"),
        pytest.param('{"v":1,"node":"n1","count":1}', id="no gpus"),
        pytest.param('{"v":1,"node":"n1","gpus":null,"count":0}', id="count of 0"),
        pytest.param('{"v":1,"node":"n1","gpus":[]}', id="empty gpus"),
    ],
)
def test_record_has_either_gpus_or_a_count(record: str):
    with pytest.raises(RecordError):
        parse_record({ALLOCATION: record})
