import pytest

from linkwise.cluster import keys
from linkwise.cluster.finding import Code, Severity
from linkwise.cluster.gang import gang_mark
from linkwise.cluster.objects.container import Container, Resources
from linkwise.cluster.objects.metadata import Metadata, Owner
from linkwise.cluster.objects.pod import Pod, PodSpec
from linkwise.workloads import operator_keys
from linkwise.workloads.gang_owner import GangOwner, gang_findings, pod_by_pod_findings
from linkwise.workloads.kinds.job_set import JOB_SET
from linkwise.workloads.kinds.leader_worker_set import LEADER_WORKER_SET
from linkwise.workloads.kinds.stateful_set import STATEFUL_SET
from linkwise.workloads.kinds.volcano_job import VOLCANO_JOB
from linkwise.workloads.owned_gang import OwnedGang, mark_by_owner
from linkwise.workloads.registry import GANG_KINDS

SIZED = {keys.POD_GROUP_NAME: "g", keys.POD_GROUP_MIN_AVAILABLE: "4"}
NAMED = {keys.POD_GROUP_NAME: "g"}
OWNED = [Owner(kind="MPIJob", name="job", controller=True)]


def codes(labels, workload=None, owners=None, annotations=None):
    pod = Pod(
        metadata=Metadata(labels=labels, owner_references=owners, annotations=annotations),
        spec=PodSpec(containers=[Container(resources=Resources(limits={keys.GPU_WHOLE: 1}))]),
    )
    mark, _ = gang_mark(pod)
    assert mark is not None
    return [(found.code, found.severity) for found in gang_findings(pod, mark, workload)]


LW401 = [(Code.GANG_ORDERED, Severity.ERROR)]
LW402 = [(Code.GANG_SIZE, Severity.ERROR)]
LW403 = [(Code.GANG_UNMOVABLE, Severity.WARNING)]


@pytest.mark.parametrize(
    ("labels", "workload", "owners", "found"),
    [
        pytest.param(SIZED, None, None, [], id="size-in-labels"),
        pytest.param(NAMED, None, None, LW402, id="unknown"),
        pytest.param(NAMED, None, OWNED, [], id="unknown-owner"),
        pytest.param(NAMED, GangOwner("MPIJob", "job", members=4), OWNED, [], id="owner-size"),
        pytest.param(NAMED, GangOwner("MPIJob", "job"), OWNED, LW402, id="owner-without-size"),
        pytest.param({keys.POD_GROUP: "g"}, None, None, [], id="pod-group"),
        pytest.param({**NAMED, keys.GPU_TOPOLOGY_REPLICA: "4"}, None, None, [], id="arenas-total"),
    ],
)
def test_gang_of_unknown_size_is_refused(labels, workload, owners, found):
    assert codes(labels, workload, owners) == found


def test_a_gang_whose_pods_are_made_one_after_the_other_is_refused():
    assert (
        codes(SIZED, GangOwner("StatefulSet", "web", members=4, ordered=STATEFUL_SET.ordered))
        == LW401
    )


@pytest.mark.parametrize(
    ("groups", "is_refused"),
    [
        ('["team/g", "team/h"]', True),
        ('["team/g"]', False),
        ("[]", False),
        ("no list", False),
        ("[7]", False),
        ("[" * 100_000, False),
    ],
)
def test_a_gang_that_starts_only_with_others_is_refused(groups, is_refused):
    annotations = {
        keys.KOORDINATOR_GANG_NAME: "g",
        keys.KOORDINATOR_GANG_MIN_AVAILABLE: "4",
        keys.KOORDINATOR_GANG_GROUPS: groups,
    }

    found = codes({}, annotations=annotations)

    assert found == ([(Code.GANG_GROUPS, Severity.ERROR)] if is_refused else [])
    assert codes(SIZED, annotations=annotations) == []


@pytest.mark.parametrize(("rolled_out", "is_stuck"), [(None, False), (3, True), (4, False)])
def test_a_gang_that_can_never_be_rolled_out_is_told_so(rolled_out, is_stuck):
    found = codes(SIZED, GangOwner("Deployment", "serve", rolled_out=rolled_out))

    assert found == ([(Code.GANG_ORDERED, Severity.WARNING)] if is_stuck else [])


@pytest.mark.parametrize("kind", [JOB_SET, LEADER_WORKER_SET, VOLCANO_JOB])
def test_a_gang_of_which_a_part_waits_for_another_is_refused(kind):
    found = codes(SIZED, GangOwner(kind.name, "train", members=4, ordered=kind.ordered))

    assert found == [(Code.GANG_WAITS_FOR_PART, Severity.ERROR)]


def test_a_gang_that_cannot_be_moved_is_warned_of():
    assert codes(SIZED, GangOwner("Job", "train", members=4, fails_when_evicted=True)) == LW403


def test_an_unknown_strictness_is_refused():
    assert codes(SIZED, annotations={keys.LINK: "fastest"}) == [(Code.GANG_LINK, Severity.ERROR)]


# ---- Owners that make pods which work together, placed one by one.

LW408 = [(Code.GANG_POD_BY_POD, Severity.WARNING)]
TORCH = Owner(api_version="kubeflow.org/v1", kind="PyTorchJob", name="train", controller=True)
JOB = Owner(api_version="batch/v1", kind="Job", name="train", controller=True)
INDEXED = {operator_keys.JOB_COMPLETION_INDEX: "0"}
OF_SET = {operator_keys.JOBSET_NAME: "train"}
OTHER_KINDS = [kind for kind in GANG_KINDS if kind != "PyTorchJob"]


def by_itself(owner, labels=None, kinds=GANG_KINDS, members=4, **annotations):
    pod = Pod(
        metadata=Metadata(labels=labels, owner_references=[owner], annotations=annotations),
        spec=PodSpec(),
    )
    found = pod_by_pod_findings(pod, GangOwner(owner.kind, owner.name, members=members), kinds)
    return [(each.code, each.severity) for each in found]


@pytest.mark.parametrize(
    ("pod", "found"),
    [
        pytest.param({"owner": TORCH, "kinds": OTHER_KINDS}, LW408, id="kind not in the policy"),
        pytest.param({"owner": TORCH}, [], id="kind in the policy"),
        pytest.param({"owner": TORCH, "kinds": (), "members": 1}, [], id="one pod"),
        pytest.param({"owner": TORCH, "kinds": (), "members": None}, [], id="number unknown"),
        pytest.param(
            {"owner": TORCH, "kinds": (), "labels": {keys.GANG: "false"}}, [], id="taken out"
        ),
        pytest.param({"owner": JOB, "labels": INDEXED}, LW408, id="Indexed Job"),
        pytest.param({"owner": JOB, "labels": INDEXED, "members": 1}, [], id="of one pod"),
        pytest.param({"owner": JOB}, [], id="Job without indices"),
        pytest.param({"owner": JOB, "labels": INDEXED | OF_SET}, [], id="Job of a JobSet"),
        pytest.param(
            {"owner": JOB, "labels": OF_SET, operator_keys.JOBSET_EXCLUSIVE: "rack"},
            LW408,
            id="JobSet with exclusive topology",
        ),
        pytest.param({"owner": Owner(kind="Deployment"), "kinds": ()}, [], id="other kind"),
    ],
)
def test_owners_whose_pods_work_together_are_warned_of_placement_one_by_one(pod, found):
    assert by_itself(**pod) == found


def test_pods_without_a_known_workload_are_not_warned_of():
    assert pod_by_pod_findings(Pod(), None, ()) == []


@pytest.mark.parametrize("kind", [JOB_SET, LEADER_WORKER_SET, VOLCANO_JOB])
def test_a_gang_by_its_owner_of_which_a_part_waits_is_placed_one_by_one(kind):
    pod = Pod(metadata=Metadata(owner_references=[TORCH]), spec=PodSpec())
    mark, _ = mark_by_owner(pod, OwnedGang(kind.gang, "train"))

    workload = GangOwner(kind.name, "train", members=4, ordered=kind.ordered)
    found = gang_findings(pod, mark, workload)

    assert [(each.code, each.severity) for each in found] == LW408
