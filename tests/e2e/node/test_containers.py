"""Several containers of a pod, init and sidecar containers, restarts, and ids used again."""

import pytest
from controlplane.node.chain import container
from controlplane.process import wait_until
from controlplane.soak import often

from linkwise.cluster import keys


def gpus(count):
    return {keys.GPU_WHOLE: count}


@pytest.fixture(scope="module", autouse=True)
def offered(running):
    wait_until(lambda: running.allocatable(keys.GPU_WHOLE) == 8, "the node offers its GPUs")
    wait_until(lambda: running.scorer.look("/v1/nodes")["nodes"], "the scorer knows the node")


def test_each_container_of_a_pod_sees_its_own_gpus(chain):
    chain.create("pod", container(gpus(1), "one"), container(gpus(2), "two"), container({}, "none"))

    one, two = chain.has("pod", "one"), chain.has("pod", "two")

    assert (len(one), len(two)) == (1, 2)
    assert one.isdisjoint(two)
    assert one | two == chain.recorded("pod")
    assert chain.has("pod", "none") == set()
    assert chain.wait_until_books_agree() == {"pod": one | two}


def test_init_and_sidecar_containers_see_gpus_of_the_record(chain):
    early = container(gpus(2), "early", then="exit 0")
    sidecar = container(gpus(1), "sidecar", restartPolicy="Always")
    chain.create("pod", container(gpus(2)), spec={"initContainers": [early, sidecar]})

    main, beside = chain.has("pod"), chain.has("pod", "sidecar")

    record = chain.recorded("pod")
    assert chain.has("pod", "early") <= record
    assert len(chain.has("pod", "early")) == 2
    assert (len(main), len(beside)) == (2, 1)
    assert main | beside == record
    chain.wait_until_books_agree()


def test_large_pods_of_others_do_not_keep_an_init_container_with_gpus_from_starting(chain):
    # Each is 1.4 MiB in etcd, and 8 MiB in an answer of the API server. None of them starts, since
    # no variable may be that long, but the kubelet has them.
    large = {"name": "LARGE", "value": "<" * 1_400_000}
    names = [f"large-{i}" for i in range(often(5, 40))]
    for name in names:
        chain.create(name, container(env=[large]), spec={"nodeName": chain.node.name})
    wait_until(lambda: set(names) <= chain.in_kubelet(), "the kubelet has them")

    early = container(gpus(2), "early", then="exit 0")
    chain.create("pod", container(), spec={"initContainers": [early]})

    assert chain.has("pod", "early") == chain.recorded("pod")
    assert len(chain.recorded("pod")) == 2


def test_a_container_that_is_started_again_sees_the_same_gpus(chain):
    chain.create("pod", container(gpus(2), then="sleep 4; exit 1"))

    first = chain.has("pod")

    assert chain.has("pod", restart=1) == chain.has("pod", restart=2) == first
    assert first == chain.recorded("pod")


def test_a_pod_with_the_device_ids_of_an_earlier_one_sees_the_gpus_of_its_own_record(chain):
    # All ids are taken each time, so that the kubelet gives the same sets to other pods.
    for turn, sizes in enumerate(((8,), (4, 4), (1, 7), (4, 4))):
        names = [f"turn-{turn}-{index}" for index in range(len(sizes))]
        for name, size in zip(names, sizes, strict=True):
            chain.create(name, container(gpus(size)))
        seen = {name: chain.has(name) for name in names}
        assert seen == {name: chain.recorded(name) for name in names}
        assert tuple(map(len, seen.values())) == sizes
        assert set().union(*seen.values()) == set(range(8))
        chain.delete(*names)
