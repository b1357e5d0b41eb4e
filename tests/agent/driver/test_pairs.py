"""Matrices of NVLinks from what each GPU reports."""

from hypothesis import given
from hypothesis import strategies as st

from agent.driver.pairs import LinkEnd, links_of
from agent.driver.reading import GPU, bus_id_of

BUS_IDS = ("0000:07:00.0", "0000:0f:00.0", "0000:17:00.0")
GPUS = tuple(GPU(i, f"GPU-{i}", bus_id, "Tesla V100", 0) for i, bus_id in enumerate(BUS_IDS))

ends = st.builds(
    LinkEnd,
    switch=st.sampled_from([True, False, None]),
    bus_id=st.sampled_from([*BUS_IDS, "", "ffffffff:ff:ff.0", "0000:99:00.0"]),
)
reports = st.lists(st.none() | st.lists(ends, max_size=8), min_size=3, max_size=3)


@given(report=reports)
def test_links_are_symmetric_and_no_more_than_each_gpu_reports(report):
    links = links_of(GPUS, report, None)

    for i in range(3):
        assert links.matrix[i][i] == 0
        for j in range(3):
            assert links.matrix[i][j] == links.matrix[j][i]
            assert links.matrix[i][j] <= len(report[i] or ())


@given(text=st.text(max_size=20))
def test_bus_id_is_normalised_or_empty(text):
    bus_id = bus_id_of(text)

    assert bus_id in {"", bus_id_of(bus_id)}


def test_bus_id_is_written_as_the_kernel_writes_it():
    assert bus_id_of("00000000:1F:00.0") == "0000:1f:00.0"
    assert bus_id_of("0001:8a:00.0") == "0001:8a:00.0"
