import msgspec
import pytest

from linkwise.cluster.requests.class_resources import ClassResources, offered_by, resources_of
from linkwise.cluster.requests.user_claims.device_class import DeviceClass

BY_NAME = "deviceclass.resource.kubernetes.io/nic"


@pytest.mark.parametrize(
    ("spec", "names"),
    [
        ({}, {BY_NAME}),
        ({"extendedResourceName": "rdma/hca"}, {BY_NAME, "rdma/hca"}),
    ],
)
def test_a_class_offers_a_resource_of_its_own_name_and_the_one_that_it_states(spec, names):
    found = msgspec.convert({"metadata": {"name": "nic"}, "spec": spec}, DeviceClass)

    assert resources_of(found) == names


def test_what_classes_offer_is_left_to_kube_scheduler():
    offered = offered_by([frozenset({"rdma/hca"}), frozenset({"efa/nic"})])

    assert {"rdma/hca", "efa/nic"} == {
        name for name in ("rdma/hca", "efa/nic", "x/y", "ephemeral-storage") if name in offered
    }


def test_where_it_is_not_known_all_resources_are_that_no_node_has():
    others = ClassResources(frozenset({"rdma/hca"}), are_others=True)

    assert "x/y" in others
    assert "rdma/hca" not in others
    assert "hugepages-2Mi" not in others
