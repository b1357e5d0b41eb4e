import pytest
from msgspec import convert
from support.builders import a_container, a_pod

from linkwise.cluster import keys
from linkwise.cluster.finding import Code
from linkwise.cluster.objects.pod import NewPodSpec
from linkwise.cluster.requests.misspelled import misspelled, near


def found(*limits, **spec):
    return list(misspelled(convert(a_pod(*limits, **spec)["spec"], NewPodSpec)))


@pytest.mark.parametrize(
    ("resource", "meant"),
    [
        ("nvidia.com/gpuu", keys.NVIDIA_GPU),
        ("nvidia.com/gpus", keys.NVIDIA_GPU),
        ("nvidia.com/gup", keys.NVIDIA_GPU),
        ("nvidia.com/GPU", keys.NVIDIA_GPU),
        ("nvida.com/gpu", keys.NVIDIA_GPU),
        ("nvidia.com/gpu-shared", keys.NVIDIA_GPU_SHARED),
        ("aliyun.com/gpumem", keys.GPU_MEM),
        ("aliyun.com/gpu_mem", keys.GPU_MEM),
        ("aliyun.com/gpu-core", keys.GPU_CORE),
        ("aliyun.com/gpu-core-percentage", keys.GPU_CORE),
        ("alyun.com/gpu", keys.GPU_WHOLE),
    ],
)
def test_misspelled_resource_is_reported_with_a_suggestion(resource, meant):
    [finding] = found({resource: 1})

    assert finding.code is Code.MISSPELT
    assert finding.field == f"spec.containers[0].resources.limits[{resource}]"
    assert meant in finding.message
    assert finding.fix.startswith(f"write {meant}")


@pytest.mark.parametrize(
    "resource",
    [
        *keys.RESOURCES,
        *keys.HAMI_RESOURCES,
        "cpu",
        "amd.com/gpu",
        "example.com/gpu",
        "rdma/hca",
        "nvidia.com/mig-1g.5gb",
        "nvidia.com/gpu-t4",
        "nvidia.com/hostdev",
        "nvidia.com/gpu" + "u" * 290,
    ],
)
def test_correct_or_foreign_resource_is_not_reported(resource):
    assert near(resource) is None
    assert found({resource: 1}) == []


def test_every_kind_of_container_is_read_and_0_asks_for_nothing():
    init = a_container({"nvidia.com/gpuu": 2})
    only_requested = {"name": "c", "resources": {"requests": {"nvidia.com/gpus": "1"}}}

    paths = [one.field for one in found(containers=[only_requested], initContainers=[init])]

    assert paths == [
        "spec.containers[0].resources.requests[nvidia.com/gpus]",
        "spec.initContainers[0].resources.limits[nvidia.com/gpuu]",
    ]
    assert found({"nvidia.com/gpuu": 0}) == []


def test_only_a_few_of_many_names_are_reported():
    assert len(found({f"aliyun.com/gpu-{number}": 1 for number in range(250)})) == 8


def test_at_most_64_unknown_names_of_a_pod_are_compared():
    others = [{f"example.com/{number}-{part}": 1 for number in range(32)} for part in range(2)]

    assert len(found(*others, {"nvidia.com/gpuu": 1})) == 0
    assert len(found(others[0], {"nvidia.com/gpuu": 1}, others[1])) == 1


@pytest.mark.parametrize(
    ("limits", "fix"),
    [
        ({keys.GPU_COUNT: 2, keys.GPU_MEM: 8}, f"write {keys.GPU_COUNT} as a label of the pod"),
        ({keys.GPU_COUNT: 2}, f"ask for {keys.GPU_WHOLE} to get whole GPUs"),
    ],
)
def test_a_number_of_cards_as_a_resource_is_to_be_a_label(limits, fix):
    [finding] = found(limits)

    assert (finding.code, finding.value) == (Code.MISSPELT, 2)
    assert "is a label of pods" in finding.message
    assert finding.fix.startswith(fix)
