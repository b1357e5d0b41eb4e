"""Faults on claims nodes: a leader that is killed amid its writes, slices that vanish or change."""

import os
import re
import subprocess
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from signal import SIGKILL

import pytest
from controlplane.claims_nodes import (
    RULES,
    are_announced,
    gets_claim,
    recorded,
    wait_until_templates_are_placed,
)
from controlplane.dra import claiming, claims_of, make_claim
from controlplane.gangs import gang_labels, make_stateful_gang, wait_for_event, wait_for_phase
from controlplane.killer import AFTER, BEFORE, Killer
from controlplane.manifests import ROOT
from controlplane.pods import container
from controlplane.process import wait_until
from controlplane.scorer import holder, start_scorer
from controlplane.soak import RUNS, often

from linkwise.cluster import keys
from linkwise.topology import catalogue
from linkwise.topology.machine import mask_of
from linkwise.topology.table import table_of

PATIENCE = 120
SIZE = often(8, 15)
KILLS = (
    [(at, cut) for at in range(1, 2 * SIZE + 1) for cut in (BEFORE, AFTER)]
    if RUNS
    else [(3, AFTER), (SIZE + 1, BEFORE), (SIZE + 5, AFTER)]
)
"""Writes at which the leader is killed: the claims of a gang are first, then its pods."""
FINALIZER, STATUS = r"PATCH .*/resourceclaims/[^/]+$", r"PATCH .*/resourceclaims/[^/]+/status$"
POD = r"PATCH .*/pods/[^/]+$"
TEMPLATE_KILLS = (
    [
        (at, cut, pattern)
        for pattern in (FINALIZER, STATUS, POD)
        for at in range(1, SIZE + 1, 2)
        for cut in (BEFORE, AFTER)
    ]
    if RUNS
    else [(3, AFTER, FINALIZER), (4, AFTER, STATUS), (2, BEFORE, POD)]
)
"""The same for a gang whose pods bring a template: three writes for each pod, in this order."""

pytestmark = pytest.mark.versions


def make_gang(pods, name, size, each=1):
    for index in range(size):
        labels = gang_labels(name, size)
        pods.create({keys.NVIDIA_GPU: each}, name=f"{name}-{index}", labels=labels)


def wait_until_allocated(pods, claims, size):
    """Wait until so many pods have a record, and all are bound with the GPUs of their records."""

    def agreed():
        records = recorded(pods)
        agree = claims.allocated(pods.namespace) == records and len(records) == size
        return agree and records.keys() <= pods.bound()

    wait_until(agreed, f"{size} pods have the GPUs of their records", PATIENCE)
    return recorded(pods)


# ---- Slices.


def node_of(placing, name):
    return next(node for node in placing.look("/v1/nodes")["nodes"] if node["name"] == name)


def test_while_slices_are_missing_nothing_is_lost_and_nothing_new_is_planned(
    pods, claims, machines, placing
):
    (node,) = machines(1)
    make_gang(pods, "ring", 4)
    before = wait_until_allocated(pods, claims, 4)

    claims.withdraw(node)
    wait_until(lambda: node_of(placing, node)["missing"], "the scorer has seen it")
    pods.create({keys.NVIDIA_GPU: 4}, name="late")

    wait_for_event(pods, "WaitingForGPUs", "missing in the driver's slices")
    seen = node_of(placing, node)
    holders = [one["pod"] for gpu in seen["gpus"] for one in gpu["holders"]]
    assert sorted(holders) == sorted(f"{pods.namespace}/{name}" for name in before)
    assert len(seen["gpus"]) == 8
    assert "missing" in seen["missing"]

    claims.publish(node)
    after = wait_until_allocated(pods, claims, 5)
    assert {name: after[name] for name in before} == before
    assert not after["late"] & frozenset().union(*before.values())


def test_a_gang_that_is_made_while_a_new_leader_knows_no_slices_runs_once_they_are_back(
    plane, pods, claims, machines, placing
):
    """As after a power failure: no slice is there when the scorer starts."""
    (node,) = machines(1)
    claims.withdraw(node)
    plane.processes.stop(placing.process)
    plane.processes.start(placing.process)
    placing.process.wait_ready(lambda: placing.leads)
    assert gets_claim(pods)
    make_gang(pods, "ring", 4)
    wait_for_phase(pods, "ring", "Waiting")
    assert are_announced(plane.api)

    claims.publish(node)
    wait_until_allocated(pods, claims, 4)


def test_gpus_of_renumbered_minors_are_held_by_what_the_slices_say(pods, claims, machines, placing):
    (node,) = machines(1)
    make_gang(pods, "pair", 2)
    before = wait_until_allocated(pods, claims, 2)

    claims.renumber(node)

    now = claims.allocated(pods.namespace)
    assert now.keys() == before.keys()
    assert now != before

    def held():
        gpus = node_of(placing, node)["gpus"]
        return {gpu["uuid"] for gpu in gpus if gpu["holders"]}

    wait_until(lambda: held() == frozenset().union(*now.values()), "the slices count", PATIENCE)
    pods.create({keys.NVIDIA_GPU: 6}, name="others")
    wait_until(lambda: "others" in claims.allocated(pods.namespace), "it is placed", PATIENCE)
    taken = [uuid for uuids in claims.allocated(pods.namespace).values() for uuid in uuids]
    assert len(taken) == len(set(taken)) == 8


EVICT = """
apiVersion: linkwise.dev/v1alpha1
kind: Policy
gangs: {onFault: evict, onFaultSeconds: 1}
"""


def test_a_gang_with_slower_links_after_a_reboot_is_evicted_and_planned_again(
    pods, claims, machines, policy
):
    policy(EVICT)
    (node,) = machines(1)
    make_stateful_gang(pods, "ring", 2, {"containers": [container({keys.NVIDIA_GPU: 1})]})
    before = wait_until_allocated(pods, claims, 2)
    wait_for_phase(pods, "ring", "Placed")
    uids = uids_of(pods)

    claims.renumber(node, shift=1)

    assert bandwidth(claims, node, claims.allocated(pods.namespace)) < bandwidth(
        claims, node, before
    )
    wait_until(lambda: not uids & uids_of(pods), "both pods are made again", PATIENCE)
    after = wait_until_allocated(pods, claims, 2)
    assert bandwidth(claims, node, after) == bandwidth(claims, node, before)


@pytest.fixture
def evicting(placing, policy):
    """The scorer, with a policy by which gangs with faults are evicted."""
    policy(EVICT)
    return placing


@pytest.fixture
def without_leader(plane, placing):
    """No scorer runs in the block, and the one of the module leads again after it."""

    @contextmanager
    def stopped():
        plane.processes.stop(placing.process)
        yield
        plane.processes.start(placing.process)
        placing.process.wait_ready(lambda: placing.leads)

    return stopped


@pytest.mark.parametrize("renumbers", [False, True], ids=["same minors", "other minors"])
def test_a_gang_with_a_lost_gpu_is_moved_whole_by_a_leader_that_never_saw_it(
    evicting, pods, claims, machines, without_leader, renumbers
):
    machines(2)
    make_stateful_gang(pods, "ring", 2, {"containers": [container({keys.NVIDIA_GPU: 4})]})
    before = wait_until_allocated(pods, claims, 2)
    wait_for_phase(pods, "ring", "Placed")
    uids, (node,) = uids_of(pods), nodes_of(pods)
    lost = min(before["ring-0"])
    i = [gpu.uuid for gpu in claims.gpus[node]].index(lost)

    with without_leader():
        claims.lose(node, lost, renumbers=renumbers)

    wait_until(lambda: not uids & uids_of(pods), "both pods are made again", PATIENCE)
    after = wait_until_allocated(pods, claims, 2)
    assert lost not in frozenset().union(*after.values())
    assert node not in nodes_of(pods)
    gpus = node_of(evicting, node)["gpus"]
    assert [(gpu["i"], gpu["uuid"]) for gpu in gpus if not gpu["healthy"]] == [(i, lost)]


def nodes_of(pods):
    return {pod["spec"]["nodeName"] for pod in pods.all().values()}


def uids_of(pods):
    return {pod["metadata"]["uid"] for pod in pods.all().values()}


def bandwidth(claims, node, held):
    uuids = frozenset().union(*held.values())
    gpus = (i for i, gpu in enumerate(claims.gpus[node]) if gpu.uuid in uuids)
    return table_of(catalogue.entry("dgx1-v100").machine).bandwidth(mask_of(gpus))


# ---- A leader, or the API server, that is killed.


WRITES = r"POST .*/resourceclaims/|PATCH .*/pods/"
"""Those of a plan whose claims Linkwise makes."""


class BetweenWrites(Killer):
    """Kills the client, or the server, at one of the writes that a pattern matches."""

    cuts_dry_runs = False
    pattern = WRITES
    at = 0
    cut = BEFORE
    _writes = count(1)

    def _cut(self, method: str, write: str) -> str:
        del method
        is_counted = self.armed and re.match(self.pattern, write)
        is_cut = is_counted and next(self._writes) == self.at
        self.killed += [write] if is_cut else []
        return self.cut if is_cut else ""


_LEASE = {
    "LINKWISE_LEASE_SECONDS": "600",
    "LINKWISE_RENEW_SECONDS": "500",
    "LINKWISE_ADDRESS": "127.0.0.1",
}
"""No test waits for the duration of such a Lease."""


@pytest.fixture
def two_replicas(plane, claims, placing, tmp_path):
    """Starts two replicas in place of the module's, the first by a proxy that kills it, or others.

    Nodes are added after that: admission learns of them from the leader.
    """
    del claims  # What it removes at the end is removed after the module's replica is back.
    plane.processes.stop(placing.process)
    started = []

    def start(at, cut, pattern=WRITES, kill=None):
        killer.pattern = pattern
        killer._kill = kill or (lambda: started[0].process.signal(SIGKILL))
        killer.at, killer.cut, killer._writes = at, cut, count(1)
        for name, server in (("first", killer.server), ("second", "")):
            log = f"{name}.log"
            started.append(start_scorer(plane, tmp_path, log, server=server, **_LEASE))
        wait_until(lambda: holder(plane) == "first", "the first replica leads", PATIENCE)
        wait_until(lambda: not are_announced(plane.api), "it announces no claims node", PATIENCE)
        killer.armed = True
        return killer

    with BetweenWrites(plane.server, str(plane.ca_file), lambda: None) as killer:
        yield start
        for scorer in started:
            plane.processes.stop(scorer.process)
    plane.processes.start(placing.process)
    placing.process.wait_ready(lambda: placing.leads)


@pytest.mark.parametrize("moment", KILLS)
def test_a_gang_is_whole_after_a_leader_was_killed_between_claims_and_patches(
    plane, pods, claims, machines, two_replicas, moment
):
    killer = two_replicas(*moment)
    machines(2)
    make_gang(pods, "bert", SIZE)

    held = wait_until_allocated(pods, claims, SIZE)

    wait_for_phase(pods, "bert", "Placed", members=f"{SIZE}/{SIZE}")
    assert len(killer.killed) == 1
    assert holder(plane) == "second"
    assert len(frozenset().union(*held.values())) == SIZE
    made = pods.api.get(claims_of(pods.namespace))["items"]
    owners = [one["metadata"]["ownerReferences"][0]["uid"] for one in made]
    assert sorted(owners) == sorted(pod["metadata"]["uid"] for pod in pods.all().values())


@pytest.mark.parametrize("moment", KILLS[::10] if RUNS else KILLS[:1])
def test_a_gang_is_whole_after_the_api_server_ended_amid_its_claims_and_patches(
    plane, pods, claims, machines, two_replicas, moment
):
    killer = two_replicas(*moment, kill=plane.restart_api_server)
    machines(2)
    make_gang(pods, "bert", SIZE)

    held = wait_until_allocated(pods, claims, SIZE)

    wait_for_phase(pods, "bert", "Placed", members=f"{SIZE}/{SIZE}")
    assert len(killer.killed) == 1
    assert holder(plane) == "first"
    assert len(frozenset().union(*held.values())) == SIZE


TEMPLATES = """
apiVersion: linkwise.dev/v1alpha1
kind: Policy
placement: {templates: auto}
"""
TEMPLATE = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: one-gpu}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]}}}
"""
USING = {
    "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}],
    "containers": [{**container(), "resources": {"claims": [{"name": "gpu"}]}}],
}


@pytest.fixture
def templated_gang(plane, pods, claims, machines, policy, rights):
    """Creates a gang whose pods bring a template for one GPU each, and waits until it is placed."""
    del rights

    def create():
        policy(TEMPLATES)
        machines(2)
        wait_until_templates_are_placed(pods)
        made = plane.kubectl("apply", f"--namespace={pods.namespace}", "-f-", stdin=TEMPLATE)
        assert made.returncode == 0, made.stderr
        for index in range(SIZE):
            labels = gang_labels("bert", SIZE)
            pods.create(name=f"bert-{index}", labels=labels, spec=USING)
        wait_until_allocated(pods, claims, SIZE)
        wait_for_phase(pods, "bert", "Placed", members=f"{SIZE}/{SIZE}")

    return create


def assert_each_has_a_gpu_of_its_own(pods, claims):
    """Assert that no GPU is in two claims, and that each claim is reserved for its pod alone."""
    held = claims.allocated(pods.namespace)
    assert [len(uuids) for uuids in held.values()] == [1] * SIZE
    assert len(frozenset().union(*held.values())) == SIZE
    uids = {pod["metadata"]["uid"] for pod in pods.all().values()}
    made = pods.api.get(claims_of(pods.namespace))["items"]
    assert sorted(one["metadata"]["ownerReferences"][0]["uid"] for one in made) == sorted(uids)
    for one in made:
        (owner,) = one["metadata"]["ownerReferences"]
        assert [user["uid"] for user in one["status"]["reservedFor"]] == [owner["uid"]]
        assert len(one["status"]["allocation"]["devices"]["results"]) == 1


@pytest.mark.parametrize("moment", TEMPLATE_KILLS)
def test_a_gang_with_templates_is_whole_after_a_leader_was_killed_at_a_write(
    plane, pods, claims, two_replicas, templated_gang, moment
):
    killer = two_replicas(*moment)

    templated_gang()

    assert len(killer.killed) == 1
    assert holder(plane) == "second"
    assert_each_has_a_gpu_of_its_own(pods, claims)


@pytest.mark.parametrize("moment", TEMPLATE_KILLS[1::10])
def test_a_gang_with_templates_is_whole_after_the_api_server_ended_at_a_write(
    plane, pods, claims, two_replicas, templated_gang, moment
):
    killer = two_replicas(*moment, kill=plane.restart_api_server)

    templated_gang()

    assert len(killer.killed) == 1
    assert holder(plane) == "first"
    assert_each_has_a_gpu_of_its_own(pods, claims)


# ---- Emergency stop: last, since it withdraws Linkwise.


def test_emergency_stop_lets_claims_of_others_in_and_changes_no_running_pod(
    plane, pods, claims, machines, placing
):
    (node,) = machines(1)
    make_gang(pods, "ring", 2)
    before = wait_until_allocated(pods, claims, 2)
    wait_until(lambda: pods.api.get(RULES)["items"], f"{node} is fenced")
    make_claim(plane.api, pods.namespace, "notebook", 2)
    pods.create(name="notebook", spec=claiming("notebook"))

    # As `kubectl scale` of the script would, where the scorer is a Deployment.
    plane.processes.stop(placing.process)
    path = f"{Path(plane.site.binaries['kubectl']).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "KUBECONFIG": str(plane.kubeconfig), "PATH": path}
    script = ROOT / "manifests/emergency-stop"
    stopped = subprocess.run(
        [script], env=environment, capture_output=True, text=True, check=False, timeout=300
    )

    # Of Kubernetes 1.36, kubectl warns that the version of DeviceTaintRules is a beta.
    errors = [line for line in stopped.stderr.splitlines() if not line.startswith("Warning: ")]
    assert (stopped.returncode, errors) == (0, [])
    assert pods.api.get(RULES)["items"] == []
    wait_until(lambda: "notebook" in pods.bound(), "a claim of others is allocated", PATIENCE)
    now = claims.allocated(pods.namespace)
    assert {name: now[name] for name in before} == before
    assert not now["notebook"] & frozenset().union(*before.values())
    plane.processes.start(placing.process)  # The fixture ends it.
