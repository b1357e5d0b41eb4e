"""The fence on a real API server: a former leader cannot write any more."""

import json
import os
import signal
import sys
from contextlib import contextmanager

import pytest
from controlplane.api import ApiError, refusal
from controlplane.history import History
from controlplane.lease_holder import NAME
from controlplane.manifests import BASE, NAMESPACE, NOT_FENCE, ROOT
from controlplane.pods import a_pod
from controlplane.process import Process, wait_until
from controlplane.webhook import access

from linkwise.cluster import keys

LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
LEASE = f"{LEASES}/{NAME}"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
GATE = {"name": keys.GANG}
GPU = {keys.GPU_WHOLE: "1"}
LATE = "the scorer that decided this is no longer the leader"


@pytest.fixture(scope="module")
def leader(plane, scorer):
    """The scorer's account, with leave to try every way to write."""
    name = "fence-every-way"
    resources = ["pods", "pods/binding", "bindings"]
    rule = {"apiGroups": [""], "resources": resources, "verbs": ["*"]}
    subject = {"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    named = {"metadata": {"name": name}}
    plane.api.create(f"{RBAC}/clusterroles", {**named, "rules": [rule]})
    binding = {**named, "roleRef": role, "subjects": [subject]}
    plane.api.create(f"{RBAC}/clusterrolebindings", binding)
    yield scorer
    for kind in ("clusterroles", "clusterrolebindings"):
        plane.api.delete(f"{RBAC}/{kind}/{name}")


@pytest.fixture
def pods(plane, leader, namespace):
    del leader
    path = f"/api/v1/namespaces/{namespace}/pods"
    plane.api.create(path, gated("probe"))
    return path


@pytest.fixture
def lease(plane, leader, pods):
    """Writes the Lease, and returns when the API server goes by it."""

    def write(spec):
        there = plane.api.get(LEASES, fieldSelector=f"metadata.name={NAME}")["items"]
        if there:
            plane.api.patch(LEASE, {"spec": spec})
        else:
            plane.api.create(LEASES, {"metadata": {"name": NAME}, "spec": spec})
        term = spec.get("leaseTransitions") or 0
        wait_until(lambda: goes_by(term), f"the term is {term}")

    def goes_by(term):
        ours, others = (refusal(lambda t=t: write_term(leader, pods, t)) for t in (term, -1))
        return (ours, LATE in others) == ("", True)

    def write_term(api, pods, term):
        api.patch(f"{pods}/probe", place(term), "json", dryRun="All")

    yield write
    if plane.api.get(LEASES, fieldSelector=f"metadata.name={NAME}")["items"]:
        plane.api.delete(LEASE)


def record(term=None, allocation='{"node": "none", "gpus": []}'):
    annotations = {} if term is None else {keys.TERM: str(term)}
    return {keys.ALLOCATION: allocation, **annotations}


def gated(name, **given):
    return a_pod(name, GPU, schedulingGates=[GATE], **given)


def place(term):
    """Return the patch of a pod that gets its GPUs."""
    return [
        {"op": "add", "path": "/metadata/annotations", "value": record(term)},
        {"op": "remove", "path": "/spec/schedulingGates"},
    ]


def test_the_leases_term_passes_and_every_older_one_is_refused_from_its_change_on(
    plane, leader, pods, lease
):
    for name in ("a", "b", "c"):
        plane.api.create(pods, gated(name))
    lease({"holderIdentity": "old", "leaseTransitions": 9})
    leader.patch(f"{pods}/a", place(9), "json")

    lease({"holderIdentity": "new", "leaseTransitions": 10})

    for term in (9, 8, 0, 11, None):
        message = refusal(lambda term=term: leader.patch(f"{pods}/b", place(term), "json"))
        named = "none" if term is None else term
        assert f"{LATE}: its term is {named}, that of the Lease 10" in message
    # The same patch again, of a pod that had got its GPUs before.
    message = refusal(
        lambda: leader.patch(f"{pods}/a", {"metadata": {"annotations": record(9, "x")}})
    )
    assert LATE in message
    leader.patch(f"{pods}/c", place(10), "json")
    assert "schedulingGates" in plane.api.get(f"{pods}/b")["spec"]


def test_an_old_term_is_refused_by_whichever_way_it_is_written(plane, leader, pods, lease):
    lease({"holderIdentity": "new", "leaseTransitions": 2})
    plane.api.create(pods, gated("held"))
    plane.api.create(pods, a_pod("free", schedulerName=keys.SCHEDULER))
    change = {"metadata": {"annotations": record(1)}}
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "free", "annotations": record(1)},
        "target": {"kind": "Node", "name": "none"},
    }
    bindings = pods.removesuffix("pods") + "bindings"
    container = {"metadata": {"annotations": {f"{keys.VISIBLE_DEVICES_OF}main": "0"}}}
    ways = {
        "pods, update": lambda: leader.patch(f"{pods}/held", change),
        "pods, a container's": lambda: leader.patch(f"{pods}/held", container),
        "pods, gate": lambda: leader.patch(f"{pods}/held", {"spec": {"schedulingGates": None}}),
        "pods/binding": lambda: leader.create(f"{pods}/free/binding", binding),
        "bindings": lambda: leader.create(bindings, binding),
        "pods/eviction": lambda: leader.create(f"{pods}/held/eviction", eviction(1)),
    }

    refusals = {way: refusal(call) for way, call in ways.items()}

    assert {way for way, text in refusals.items() if LATE in text} == set(ways), refusals
    held, free = (plane.api.get(f"{pods}/{name}") for name in ("held", "free"))
    assert keys.ALLOCATION not in {**held["metadata"].get("annotations", {})}
    assert (held["spec"]["schedulingGates"], free["spec"].get("nodeName")) == ([GATE], None)
    binding["metadata"]["annotations"] = record(2)
    leader.create(f"{pods}/free/binding", binding)
    assert plane.api.get(f"{pods}/free")["metadata"]["annotations"] == record(2)
    assert refusal(lambda: leader.create(f"{pods}/held/eviction", eviction(2))) == ""


def eviction(term):
    """Return the eviction of pod `held`."""
    metadata = {"name": "held", "annotations": {keys.TERM: str(term)}}
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}


def test_a_record_is_taken_away_or_changed_in_the_current_term_alone(plane, leader, pods, lease):
    lease({"holderIdentity": "old", "leaseTransitions": 1})
    plane.api.create(pods, gated("placed"))
    leader.patch(f"{pods}/placed", place(1), "json")
    lease({"leaseTransitions": 2})
    gone = {keys.ALLOCATION: None}

    for annotations in (gone, {keys.ALLOCATION: "x"}, {**gone, keys.TERM: None}):
        change = {"metadata": {"annotations": annotations}}
        message = refusal(lambda change=change: leader.patch(f"{pods}/placed", change))
        assert LATE in message

    leader.patch(f"{pods}/placed", {"metadata": {"annotations": {**gone, keys.TERM: "2"}}})


def test_writes_of_others_need_no_term(plane, leader, pods, lease):
    lease({"holderIdentity": "old", "leaseTransitions": 1})
    plane.api.create(pods, gated("placed"))
    leader.patch(f"{pods}/placed", place(1), "json")
    lease({"leaseTransitions": 2})

    label = {"metadata": {"labels": {"any": "thing"}, "annotations": {"any": "thing"}}}
    plane.api.patch(f"{pods}/placed", label)
    plane.api.create(pods, gated("new"), dryRun="All")


@pytest.mark.parametrize("spec", [{}, {"holderIdentity": "first"}, {"leaseTransitions": 0}])
def test_a_lease_without_transitions_is_at_term_0(leader, pods, lease, spec):
    lease(spec)

    assert LATE in refusal(lambda: leader.patch(f"{pods}/probe", place(1), "json"))
    leader.patch(f"{pods}/probe", place(0), "json")


def test_without_a_lease_writes_to_pods_pass(plane, leader, pods, lease):
    lease({"holderIdentity": "old", "leaseTransitions": 3})
    plane.api.create(pods, gated("pod"))
    plane.api.delete(LEASE)

    # No other replica has led since, so no write can be late.
    wait_until(
        lambda: refusal(lambda: leader.patch(f"{pods}/pod", place(3), "json", dryRun="All")) == "",
        "the API server has seen it go",
    )
    plane.api.patch(f"{pods}/pod", {"metadata": {"labels": {"any": "thing"}}})


def test_the_fence_holds_after_an_uninstall_and_a_new_installation(plane, leader, pods, lease):
    files = [f"--filename={BASE / name}" for name in ("fence.yaml", "guard.yaml")]
    plane.kubectl("delete", f"--selector={NOT_FENCE}", *files)
    wait_until(
        lambda: refusal(lambda: plane.api.create(pods, gated("any", annotations=record(1)))) == "",
        "the guard is out",
    )
    lease({"holderIdentity": "old", "leaseTransitions": 4})
    plane.kubectl("apply", *files)

    lease({"holderIdentity": "new", "leaseTransitions": 5})

    assert LATE in refusal(lambda: leader.patch(f"{pods}/probe", place(4), "json"))
    leader.patch(f"{pods}/probe", place(5), "json")


class Holder:
    """A process that leads, by the log that it writes."""

    def __init__(self, process):
        self.process = process

    @property
    def writes(self):
        lines = self.process.log.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith('{"term"')]

    def passed(self, term):
        return {"term": term, "refused": ""} in self.writes


@pytest.fixture
def holders(plane, pods, tmp_path):
    """Starts processes that lead, each by its name, and write on one pod."""
    plane.api.create(pods, gated("work"))
    environment = access(plane, tmp_path, NAME)
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    started = []

    def start(name, *timing):
        words = (name, f"{pods}/work", *map(str, timing))
        argv = (sys.executable, "-m", "controlplane.lease_holder", *words)
        process = Process(name, argv, tmp_path / f"{name}.log", env=environment)
        plane.processes.start(process)
        started.append(process)
        return Holder(process)

    yield start
    for process in started:
        if process in plane.processes.running:
            plane.processes.stop(process)
    plane.api.delete(LEASE)


@contextmanager
def history(plane, pods):
    """Give the terms that the pod had, in the API server's own order, when all is over."""
    terms = []
    with History(plane.api) as recorded:
        yield terms
        now = plane.api.get(f"{pods}/work")["metadata"]

        def written():
            metadata = [write.pod["metadata"] for write in recorded.writes]
            return [one for one in metadata if one["uid"] == now["uid"]]

        def is_seen():
            return now["resourceVersion"] in {one["resourceVersion"] for one in written()}

        wait_until(is_seen, "the history is complete")
        annotations = (one.get("annotations", {}) for one in written())
        terms += [int(each[keys.TERM]) for each in annotations if keys.TERM in each]


def test_a_leader_that_was_stopped_past_its_lease_and_goes_on_writes_nothing(plane, pods, holders):
    with history(plane, pods) as terms:
        first = holders("first", 15, 10, 1)
        wait_until(lambda: first.passed(0), "the first one leads")
        first.process.signal(signal.SIGSTOP)
        before = len(first.writes)
        second = holders("second", 15, 10, 1)
        wait_until(lambda: second.passed(1), "the second one has taken over")

        first.process.signal(signal.SIGCONT)

        wait_until(lambda: "Lost Lease" in log(first), "the first one knows")
        # The first line may be about a response that came while the process was stopped.
        wait_until(lambda: LATE in first.writes[-1]["refused"], "the first one has tried")
        count = len(second.writes)
        wait_until(lambda: len(second.writes) > count + 10, "the second one goes on")

    late = first.writes[before:]
    assert {"term": 0, "refused": ""} not in late[1:]
    assert {"term": 1, "refused": ""} not in late
    assert (terms[0], terms[-1]) == (0, 1)
    assert terms == sorted(terms)
    assert plane.api.get(LEASE)["spec"]["holderIdentity"] == "second"


def log(holder):
    return holder.process.log.read_text()


def test_a_leader_that_is_terminated_is_followed_at_once(plane, pods, holders):
    # A replica that had to wait for the duration would wait for longer than the test does.
    with history(plane, pods) as terms:
        first = holders("first", 600, 400, 1)
        wait_until(lambda: first.passed(0), "the first one leads")
        second = holders("second", 600, 400, 1)
        wait_until(lambda: "Listed objects" in log(second), "the second one waits")

        plane.processes.stop(first.process)

        wait_until(lambda: second.passed(1), "the second one leads")

    assert terms == sorted(terms)
    assert "Released Lease" in log(first)
    plane.processes.stop(second.process)
    spec = plane.api.get(LEASE)["spec"]
    assert (spec.get("holderIdentity", ""), spec["leaseTransitions"]) == ("", 1)


def test_the_scorers_account_has_only_the_rights_to_its_lease_that_leading_takes(plane, scorer):
    scorer.create(LEASES, {"metadata": {"name": NAME}, "spec": {}})
    try:
        scorer.get(LEASE)
        scorer.get(LEASES, fieldSelector=f"metadata.name={NAME}")
        scorer.patch(LEASE, {"spec": {"holderIdentity": "me"}})
        for call in (
            lambda: scorer.get(LEASES),
            lambda: scorer.delete(LEASE),
            lambda: scorer.get(f"{LEASES}/another"),
        ):
            with pytest.raises(ApiError, match="forbidden"):
                call()
    finally:
        plane.api.delete(LEASE)
