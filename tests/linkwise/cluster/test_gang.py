from typing import Any

import msgspec
import pytest
from hypothesis import given
from support.builders import a_pod
from support.strategies import pods

from linkwise.cluster import keys
from linkwise.cluster.finding import Code
from linkwise.cluster.gang import Link, Mark, gang_mark, is_member, link_strictness
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.requests.request_reader import read_request

ARENA = {keys.POD_GROUP_NAME: "mpijob-vgg16", keys.POD_GROUP_MIN_AVAILABLE: "4"}
KOORDINATOR = {
    keys.KOORDINATOR_GANG_NAME: "koord",
    keys.KOORDINATOR_GANG_MIN_AVAILABLE: "3",
}
OURS = {keys.GANG: "ours", keys.GANG_SIZE: "2"}


def decoded(*limits: dict[str, Any], **parts: Any) -> Pod:
    return msgspec.convert(a_pod(*limits, **parts), Pod)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({}, None),
        (
            {"schedulingGroup": {"podGroupName": "native"}},
            Mark("native", None, None, "spec.schedulingGroup.podGroupName"),
        ),
        (
            {"labels": {keys.POD_GROUP: "group"}},
            Mark("group", None, None, f"metadata.labels[{keys.POD_GROUP}]"),
        ),
        (
            {"labels": ARENA},
            Mark("mpijob-vgg16", 4, None, f"metadata.labels[{keys.POD_GROUP_NAME}]"),
        ),
        (
            {"annotations": KOORDINATOR},
            Mark("koord", 3, None, f"metadata.annotations[{keys.KOORDINATOR_GANG_NAME}]"),
        ),
        ({"annotations": OURS}, Mark("ours", 2, None, f"metadata.annotations[{keys.GANG}]")),
        (
            {"annotations": {keys.GANG: "ours"}},
            Mark("ours", None, None, f"metadata.annotations[{keys.GANG}]"),
        ),
        ({"annotations": {keys.GANG_SIZE: "2"}}, None),
        ({"labels": {keys.POD_GROUP_NAME: ""}}, None),
        ({"schedulingGroup": {}}, None),
    ],
    ids=[
        *("none", "native", "scheduler-plugins", "arena", "koordinator", "ours", "without size"),
        *("size alone", "empty name", "empty group"),
    ],
)
def test_each_kind_of_mark_is_read(parts, expected):
    assert gang_mark(decoded(**parts)) == (expected, ())


def test_of_several_marks_the_first_in_order_applies():
    parts: dict[str, Any] = {
        "schedulingGroup": {"podGroupName": "native"},
        "labels": {keys.POD_GROUP: "group", **ARENA},
        "annotations": {**KOORDINATOR, **OURS},
    }
    names = []
    for part, key in (
        *((None, None), ("schedulingGroup", None), ("labels", keys.POD_GROUP)),
        *(("labels", keys.POD_GROUP_NAME), ("annotations", keys.KOORDINATOR_GANG_NAME)),
    ):
        if part and key:
            del parts[part][key]
        elif part:
            del parts[part]
        mark, _ = gang_mark(decoded(**parts))
        names.append(mark and mark.name)

    assert names == ["native", "group", "mpijob-vgg16", "koord", "ours"]


@pytest.mark.parametrize(
    ("replicas", "total"), [("4", 4), ("12", 12), ("true", None)], ids=lambda text: f"{text}"
)
def test_arenas_replica_label_is_the_total_unless_it_says_true(replicas, total):
    labels = {**ARENA, "gpu-topology": "vgg16", keys.GPU_TOPOLOGY_REPLICA: replicas}

    mark, findings = gang_mark(decoded(labels=labels))

    assert mark is not None
    assert (mark.min_available, mark.total, findings) == (4, total, ())


@pytest.mark.parametrize("text", ["0", "-1", "four", "4.0", "", " 4", "٤", "9" * 10])
@pytest.mark.parametrize(
    ("kind", "key", "others"),
    [
        ("labels", keys.POD_GROUP_MIN_AVAILABLE, ARENA),
        ("labels", keys.GPU_TOPOLOGY_REPLICA, ARENA),
        ("annotations", keys.KOORDINATOR_GANG_MIN_AVAILABLE, KOORDINATOR),
        ("annotations", keys.GANG_SIZE, OURS),
    ],
)
def test_invalid_size_is_reported_and_ignored(kind, key, others, text):
    mark, (finding,) = gang_mark(decoded(**{kind: {**others, key: text}}))

    assert mark is not None
    assert None in (mark.min_available, mark.total)
    assert (finding.code, finding.value) == (Code.GANG_SIZE, text)
    assert finding.field == f"metadata.{kind}[{key}]"


def test_all_invalid_sizes_are_reported_together():
    labels = {**ARENA, keys.POD_GROUP_MIN_AVAILABLE: "x", keys.GPU_TOPOLOGY_REPLICA: "y"}

    _, findings = gang_mark(decoded(labels=labels))

    assert [finding.value for finding in findings] == ["x", "y"]


def test_a_topology_label_alone_makes_no_gang():
    labels = {"gpu-topology": "vgg16", keys.GPU_TOPOLOGY_REPLICA: "x"}

    assert gang_mark(decoded(labels=labels)) == (None, ())


@pytest.mark.parametrize(
    ("limits", "labels", "owner", "expected"),
    [
        ({keys.GPU_WHOLE: 1}, ARENA, "MPIJob", True),
        ({keys.GPU_MEM: 4}, ARENA, "Job", True),
        ({keys.NVIDIA_GPU_SHARED: 1}, ARENA, None, False),
        ({keys.NVIDIA_GPU: 1}, ARENA, "Job", False),
        ({"cpu": 1}, ARENA, "Job", False),
        ({keys.GPU_WHOLE: 1}, ARENA, "DaemonSet", False),
        ({keys.GPU_WHOLE: 1}, {}, "Job", False),
    ],
    ids=["whole", "share", "replica", "nvidia", "launcher", "daemon", "no mark"],
)
def test_members_ask_for_gpus_that_linkwise_chooses(limits, labels, owner, expected):
    pod = decoded(limits, labels=labels, owner=owner)

    assert is_member(pod, read_request(pod)[0], gang_mark(pod)[0]) is expected


@pytest.mark.parametrize("link", Link)
def test_the_strictness_of_links_is_read(link):
    assert link_strictness(decoded(annotations={keys.LINK: link})) == (link, ())


def test_without_a_word_the_best_links_are_taken():
    assert link_strictness(decoded()) == (Link.BEST, ())


@pytest.mark.parametrize("text", ["", "NVLink", "fast"])
def test_unknown_strictness_is_reported_with_the_known_ones(text):
    link, (finding,) = link_strictness(decoded(annotations={keys.LINK: text}))

    assert link is Link.BEST
    assert (finding.code, finding.value) == (Code.GANG_LINK, text)
    assert finding.field == f"metadata.annotations[{keys.LINK}]"
    assert "best, nvlink, one-node" in finding.message


@given(pods())
def test_a_member_always_has_a_mark_and_gpus(raw):
    pod = msgspec.convert(raw, Pod)
    request, _ = read_request(pod)
    mark, _ = gang_mark(pod)

    if is_member(pod, request, mark):
        assert mark is not None
        assert request.places


def test_long_names_are_shortened_and_stay_unique():
    names = ["x" * 200_000 + end for end in ("a", "b")]
    pods = [a_pod(annotations={keys.GANG: name, keys.GANG_SIZE: "2"}) for name in names]

    first, second = (gang_mark(msgspec.convert(pod, Pod))[0].name for pod in pods)

    assert first != second
    assert {len(first), len(second)} == {253}
