from support.dashboard import placed_pod, waiting_pod

from linkwise.views.render.page.rows import colour_of

VGG = placed_pod("vgg-0", 0), placed_pod("vgg-1", 3)


def test_the_rows_of_the_map_name_holders_and_states(moment):
    rows = moment(*VGG).rows

    assert rows["dgx-0"].states == "#..#...."
    assert (rows["dgx-0"].free, rows["dgx-0"].stranded) == (6, 6)
    assert [holder.pod for holder in rows["dgx-0"].holders] == ["team/vgg-0", "team/vgg-1"]
    assert {holder.gang for holder in rows["dgx-0"].holders} == {"team/vgg"}
    assert {holder.colour for holder in rows["dgx-0"].holders} == {colour_of("team/vgg")}
    assert rows["share"].states == "2000"


def test_the_number_of_waiting_units_needs_no_plan(moment):
    here = moment(waiting_pod("a", 2), waiting_pod("b", 99), *VGG)

    assert here.waiting == len(here.pending) == 2
