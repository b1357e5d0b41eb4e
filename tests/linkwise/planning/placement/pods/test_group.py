from support.builders import a_member, workers

from linkwise.cluster.keys import GPU_MEM, GPU_WHOLE
from linkwise.cluster.requests.demand import Demand
from linkwise.planning.placement.pods.group import new_group


def test_equal_members_are_of_one_kind_and_add_up():
    group = new_group(workers(3, 2, limits={"cpu": 2, "memory": "1Gi"}))

    assert (group.size, group.gpus, group.gpus_each) == (3, 6, 2)
    assert [kind.name for kind in group.representatives] == ["default/worker-0"]
    assert group.total == Demand(6000, 3 << 30)
    assert group.largest == Demand(2000, 1 << 30)
    assert not group.has_port_conflict


def test_unequal_members_ask_for_no_common_number_of_gpus():
    group = new_group([a_member(1, "a"), a_member(2, "b", limits={"cpu": 5})])

    assert (group.gpus, group.gpus_each) == (3, None)
    assert len(group.representatives) == 2
    assert group.largest.cpu == 5000


def test_members_with_equal_gpus_may_differ_otherwise():
    group = new_group([a_member(2, "a", limits={"cpu": 5}), a_member(2, "b")])

    assert group.gpus_each == 2
    assert len(group.representatives) == 2


def test_shares_are_no_whole_gpus():
    group = new_group(workers(2, 0, limits={GPU_MEM: 4}))

    assert (group.gpus, group.gpus_each) == (0, None)


def test_members_that_want_the_same_host_port_go_apart():
    def opening(*ports: int) -> list[dict[str, object]]:
        return [
            {
                "name": "c",
                "resources": {"limits": {GPU_WHOLE: 1}},
                "ports": [{"hostPort": port} for port in ports],
            }
        ]

    def group(*ports: tuple[int, ...]) -> bool:
        members = [a_member(1, f"w{i}", containers=opening(*p)) for i, p in enumerate(ports)]
        return new_group(members).has_port_conflict

    assert group((22, 23), (23,))
    assert not group((22,), (23,), ())
    assert not group((22, 22))
