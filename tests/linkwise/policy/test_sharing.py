import pytest

from linkwise.cluster import keys
from linkwise.policy.document import parse_plugin_config, parse_policy
from linkwise.policy.sharing import Shared, plugin_groups, shared_by
from linkwise.policy.snapshot import PolicySnapshot


def offers(sharing):
    [group] = plugin_groups({"any": parse_plugin_config(f"sharing: {sharing}")})
    return [*shared_by(group)]


GPU, RENAMED = keys.NVIDIA_GPU, keys.NVIDIA_GPU_SHARED


@pytest.mark.parametrize(
    ("sharing", "shared"),
    [
        ("{}", []),
        (
            "{timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}",
            [Shared(GPU, GPU, "time-slicing", 4, False)],
        ),
        (
            "{timeSlicing: {failRequestsGreaterThanOne: true, renameByDefault: true, "
            "resources: [{name: gpu, replicas: 2}, {name: nvidia.com/mig-1g.5gb, replicas: 3}]}}",
            [
                Shared(RENAMED, GPU, "time-slicing", 2, True),
                Shared(
                    "nvidia.com/mig-1g.5gb.shared", "nvidia.com/mig-1g.5gb", "time-slicing", 3, True
                ),
            ],
        ),
        (
            "{mps: {resources: [{name: nvidia.com/gpu, replicas: 10}]}}",
            [Shared(GPU, GPU, "mps", 10, True)],
        ),
        (
            "{mps: {failRequestsGreaterThanOne: false, resources: [{name: gpu, replicas: 10}]}}",
            [Shared(GPU, GPU, "mps", 10, False)],
        ),
    ],
    ids=["nothing", "time-slicing", "renamed", "mps", "mps lets pass"],
)
def test_nodes_offer_what_their_plugin_shares(sharing, shared):
    assert offers(sharing) == shared


def test_of_several_plugin_files_each_is_for_the_nodes_that_name_it():
    config = parse_plugin_config("version: v1")

    assert [group.node_labels for group in plugin_groups({"a": config})] == [{}]
    assert [group.node_labels for group in plugin_groups({"a": config, "b": config})] == [
        {keys.DEVICE_PLUGIN_CONFIG: "a"},
        {keys.DEVICE_PLUGIN_CONFIG: "b"},
    ]


def test_a_snapshot_lists_what_all_groups_share():
    one = "config: {sharing: {mps: {resources: [{name: gpu, replicas: 3}]}}}"
    text = f"sharing:\n  groups:\n  - nodeLabels: {{a: b}}\n    {one}\n  - {one}\n"

    assert [shared.replicas for shared in PolicySnapshot(parse_policy(text)).shared] == [3, 3]
