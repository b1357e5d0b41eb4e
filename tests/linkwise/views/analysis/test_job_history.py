import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import a_counted_node, a_machine, a_node, a_pod

from linkwise.cluster.account.ledger import Ledger
from linkwise.cluster.account.node_ledger import Holding, NodeLedger
from linkwise.cluster.allocations.gpus import Counted, Exact, GPUShare
from linkwise.cluster.keys import NVIDIA_GPU, NVIDIA_GPU_SHARED
from linkwise.cluster.objects.pod import Pod
from linkwise.cluster.requests.demand import Demand
from linkwise.policy.snapshot import PolicySnapshot
from linkwise.replay.job import FOREVER, Shape
from linkwise.replay.traces.history import HISTORY
from linkwise.replay.traces.read import TraceReader, format_of
from linkwise.views.analysis.job_history import HEADER, JobHistory
from linkwise.views.files.cluster_file import Cluster
from linkwise.views.files.current_cluster import CurrentCluster

NODES = {
    "dgx": a_node("dgx"),
    "more": a_node("more"),
    "t4": a_node("t4", a_machine(4), "core_mem", card_memory=16),
    "sliced": a_node("sliced", a_machine(4), "timeslice"),
    "counted": a_counted_node("counted"),
}
CREATED = "1970-01-01T00:01:00Z"


def a_holding(uid, *shares, gang=None, gpus=None, stays=False, cpu=4000):
    held = gpus or Exact(tuple(GPUShare(i) if isinstance(i, int) else i for i in shares))
    return Holding(f"team/{uid}", uid, held, Demand(cpu, 3 << 20), gang=gang, stays=stays)


def a_cluster(created=CREATED, **holdings):
    """Return a cluster with these pods on each node, all of which were created at one time."""
    ledgers = {name: NodeLedger.empty(node) for name, node in NODES.items()}
    pods = []
    for name, held in holdings.items():
        for holding in held:
            ledgers[name] = ledgers[name].hold(holding)
            plain = a_pod({}, name=holding.uid)
            plain["metadata"] |= {"uid": holding.uid, "creationTimestamp": created}
            pods.append(msgspec.convert(plain, Pod))
    cluster = Cluster(Ledger(ledgers), tuple(pods))
    return CurrentCluster(cluster, PolicySnapshot(), (), "team", "here")


def jobs_of(lines):
    reader = TraceReader("h.csv", lambda: iter([HEADER, *lines]), HISTORY)
    return list(reader.jobs(is_sorted=False))


def seen(*states):
    """Return the jobs of a history, the states of which are 10 s apart from 100 s on."""
    history = JobHistory()
    lines = [
        line for i, state in enumerate(states) for line in history.observe(state, 100 + 10 * i)
    ]
    return jobs_of([*lines, *history.finish()])


def test_a_pod_is_a_job_from_its_creation_to_its_end():
    (job,) = seen(a_cluster(), a_cluster(dgx=[a_holding("a", 0, 1)]), a_cluster())

    assert (job.name, job.submit, job.duration) == ("1", 60, 10)
    assert job.shape == Shape(2, cpu=4000, memory=3 << 20)


def test_a_job_that_ran_before_began_when_it_was_created():
    (job,) = seen(a_cluster(dgx=[a_holding("a", 0)]), a_cluster())

    assert (job.submit, job.duration) == (60, 50)


def test_a_job_that_still_runs_has_no_end():
    (job,) = seen(a_cluster(dgx=[a_holding("a", 0)]))

    assert job.duration == FOREVER


def test_a_gang_is_one_job_with_all_its_members():
    def members(*places):
        held = {"dgx": [], "more": []}
        for number, node in enumerate(places):
            if node:
                held[node].append(a_holding(f"w{number}", number, gang="team/g", cpu=number))
        return a_cluster(**held)

    (job,) = seen(
        a_cluster(),
        members("dgx", "dgx", None),
        members("dgx", "dgx", "more"),
        members(None, "dgx", "more"),
        members(None, None, "more"),
        a_cluster(),
    )

    assert job.duration == 40
    assert job.shape == Shape(1, cpu=2, memory=3 << 20, pods=3)


def test_a_name_that_is_used_again_is_another_job():
    first = a_cluster(dgx=[a_holding("a", 0, gang="team/g")])
    second = a_cluster(dgx=[a_holding("b", 0, gang="team/g")])

    assert [job.duration for job in seen(a_cluster(), first, second, a_cluster())] == [10, 10]


@pytest.mark.parametrize(
    ("node", "holding", "shape"),
    [
        ("t4", a_holding("a", GPUShare(0, mem=4)), (1, 250)),
        ("t4", a_holding("a", GPUShare(0, mem=4, core=50)), (1, 500)),
        ("sliced", a_holding("a", 0), (1, 250)),
        ("counted", a_holding("a", gpus=Counted(NVIDIA_GPU, 2)), (2, 1000)),
        # A share of several GPUs is replayed as whole ones.
        ("t4", a_holding("a", GPUShare(0, mem=4), GPUShare(1, mem=4)), (2, 1000)),
    ],
    ids=["memory", "compute", "replica", "counted", "several"],
)
def test_parts_of_gpus(node, holding, shape):
    (job,) = seen(a_cluster(**{node: [holding]}))

    assert (job.shape.gpus, job.shape.milli) == shape


@pytest.mark.parametrize(
    "holding",
    [
        a_holding("a", 0, stays=True),
        a_holding("a"),
        a_holding("a", gpus=Counted(NVIDIA_GPU_SHARED, 1)),
    ],
    ids=["DaemonSet", "no GPUs", "a part of unknown size"],
)
def test_other_pods_are_no_jobs(holding):
    assert seen(a_cluster(counted=[holding])) == []


@pytest.mark.parametrize("created", [None, "", "soon"])
def test_without_a_time_of_creation_it_is_that_of_the_first_look(created):
    (job,) = seen(a_cluster(created, dgx=[a_holding("a", 0)]))

    assert job.submit == 100


def test_a_line_has_no_names():
    history = JobHistory()
    history.observe(a_cluster(dgx=[a_holding("secret", 0, gang="team/secret")]), 100)

    assert list(history.finish()) == ["1,60.0,,1,1,1000,4000,3\n"]


def test_the_format_is_recognised():
    assert format_of(HEADER, "h.csv") is HISTORY


@given(st.lists(st.sets(st.integers(0, 7)), max_size=12))
def test_each_job_is_one_line(states):
    clusters = [a_cluster(dgx=[a_holding(f"p{i}", i) for i in state]) for state in states]
    jobs = seen(*clusters)

    begins = sum(len(now - before) for before, now in zip([set(), *states], states, strict=False))
    assert len(jobs) == begins
    assert len({job.name for job in jobs}) == len(jobs)
    running = len(states[-1]) if states else 0
    assert sum(job.duration == FOREVER for job in jobs) == running
