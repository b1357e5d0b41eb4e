"""Pods that bring ResourceClaims, or templates of such: Linkwise allocates the claims."""

from itertools import combinations

import pytest
from controlplane.claims_nodes import CLASSES, recorded, wait_until_templates_are_placed
from controlplane.definitions import define
from controlplane.dra import SLICES, claims_of
from controlplane.gangs import gang_labels, wait_for_event, wait_for_phase
from controlplane.manifests import DEFINITIONS
from controlplane.pods import container, gates
from controlplane.process import wait_for, wait_until

from linkwise.cluster import keys
from linkwise.topology import catalogue
from linkwise.topology.machine import mask_of
from linkwise.topology.table import table_of

DGX = table_of(catalogue.entry("dgx1-v100").machine)
TF = ("kubeflow.org", "v1", "TFJob")
PATIENCE = 120
POLICY = """
apiVersion: linkwise.dev/v1alpha1
kind: Policy
placement: {templates: auto}
gangs: {kinds: [MPIJob, TFJob]}
"""
PCIE_ROOT = "resource.kubernetes.io/pcieRoot"
CHANNELS = "compute-domain.nvidia.com"
CHANNEL_CLASS = "compute-domain-default-channel.nvidia.com"

pytestmark = [pytest.mark.versions, pytest.mark.usefixtures("rights", "templates_placed")]


@pytest.fixture
def templates_placed(policy, machines, pods):
    """Two claims nodes, and a policy by which claims of templates are allocated."""
    policy(POLICY)
    nodes = machines(2)
    wait_until_templates_are_placed(pods)
    yield nodes
    pods.clear()
    pods.api.delete(templates_of(pods))


def templates_of(pods):
    return f"/apis/resource.k8s.io/v1/namespaces/{pods.namespace}/resourceclaimtemplates"


def make_template(
    pods, name, count=1, device_class=keys.DRA_GPU_DRIVER, *, constraints=(), **exactly
):
    request = {"name": "gpu", "exactly": {"deviceClassName": device_class, **exactly}}
    request["exactly"]["count"] = count
    spec = {"spec": {"devices": {"requests": [request], "constraints": list(constraints)}}}
    pods.api.create(templates_of(pods), {"metadata": {"name": name}, "spec": spec})


def make_claim(pods, name, count=1):
    """Create a claim of no pod; several may name it."""
    exactly = {"deviceClassName": keys.DRA_GPU_DRIVER, "count": count}
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    pods.api.create(claims_of(pods.namespace), {"metadata": {"name": name}, "spec": spec})


def using(*sources, field="resourceClaimTemplateName"):
    """Return the fields of a pod's spec that give its container claims, of templates by default."""
    names = [f"claim-{i}" for i in range(len(sources))]
    resources = {"claims": [{"name": name} for name in names]}
    return {
        "resourceClaims": [
            {"name": name, field: source} for name, source in zip(names, sources, strict=True)
        ],
        "containers": [{**container({}), "resources": resources}],
    }


def create_gated(pods, name, spec, **fields):
    """Create a pod with claims, and return it; again, if admission could not read them in time."""

    def is_gated():
        made = pods.create(name=name, spec=spec, **fields)
        if gates(made) == [keys.GANG]:
            return made
        pods.api.delete(f"{pods.path}/{name}", gracePeriodSeconds="0")
        return None

    return wait_for(is_gated, f"admission has read the claims of {name}")


def placed(claims, pods, prefix, count):
    """Wait until pods are bound with the GPUs of their records; return those, by pod."""

    def agreed():
        made = pods.all()
        records = {n: held for n, held in recorded(pods).items() if n.startswith(prefix)}
        if len(records) != count or any(not made[n]["spec"].get("nodeName") for n in records):
            return None
        held = gpus_of_claims(claims, pods)
        return records if all(held.get(n) == uuids for n, uuids in records.items()) else None

    records = wait_for(agreed, f"{count} pods {prefix}* have the GPUs of their records", PATIENCE)
    made = pods.all()
    found = {}
    for name, uuids in records.items():
        node = made[name]["spec"]["nodeName"]
        found[name] = node, {i for i, gpu in enumerate(claims.gpus[node]) if gpu.uuid in uuids}
    return found


def gpus_of_claims(claims, pods):
    """Return the UUIDs that the claims for GPUs hold, by pod."""
    found = {}
    for claim in pods.api.get(claims_of(pods.namespace))["items"]:
        status = claim.get("status", {})
        results = status.get("allocation", {}).get("devices", {}).get("results", ())
        uuids = {claims._uuid(one) for one in results if one["driver"] == keys.DRA_GPU_DRIVER}
        for user in status.get("reservedFor", ()) if uuids else ():
            found[user["name"]] = frozenset(uuids)
    return found


def bandwidth(gpus):
    return DGX.bandwidth(mask_of(gpus))


def best(size):
    return max(map(bandwidth, combinations(range(8), size)))


def test_an_mpi_job_of_four_times_two_has_one_node_and_distinct_gpus(claims, pods):
    """With arena's marks: training-operator drops fields of pods that are younger than it is."""
    make_template(pods, "two-gpus", 2)
    labels = {**gang_labels("train", 4), "training.kubeflow.org/job-name": "train"}
    for i in range(4):
        create_gated(pods, f"train-worker-{i}", using("two-gpus"), labels=labels)
    pods.create({}, name="train-launcher", labels=labels)

    members = placed(claims, pods, "train-worker", 4)

    wait_for_phase(pods, "train", "Placed", members="4/4")
    assert len({node for node, _ in members.values()}) == 1
    assert sorted(i for _, gpus in members.values() for i in gpus) == list(range(8))
    assert min(bandwidth(gpus) for _, gpus in members.values()) > 0
    wait_until(lambda: "train-launcher" in pods.bound(), "the launcher is bound", PATIENCE)


@pytest.fixture
def tf_jobs(plane):
    """The kind TFJob, whose operator is not here: it drops claims of templates that are newer."""
    group, version, kind = TF
    define(plane.api, group, kind, version)
    yield
    plane.api.delete(f"{DEFINITIONS}/tfjobs.{group}")


@pytest.mark.usefixtures("tf_jobs")
def test_a_tf_job_has_one_of_the_best_sets_of_four(claims, pods):
    make_template(pods, "single-gpu")
    group, version, kind = TF
    template = {"spec": using("single-gpu")}
    roles = {
        "Chief": {"replicas": 1, "template": template},
        "Worker": {"replicas": 3, "template": template},
    }
    head = {"apiVersion": f"{group}/{version}", "kind": kind}
    path = f"/apis/{group}/{version}/namespaces/{pods.namespace}/tfjobs"
    job = pods.api.create(
        path, {**head, "metadata": {"name": "bert"}, "spec": {"tfReplicaSpecs": roles}}
    )
    owner = {**head, "name": "bert", "uid": job["metadata"]["uid"], "controller": True}
    for role, index in (("chief", 0), *(("worker", index) for index in range(3))):
        labels = {
            "training.kubeflow.org/job-name": "bert",
            "training.kubeflow.org/operator-name": "tfjob-controller",
            "training.kubeflow.org/replica-index": str(index),
            "training.kubeflow.org/replica-type": role,
        }
        metadata = {"name": f"bert-{role}-{index}", "labels": labels, "ownerReferences": [owner]}
        pods.api.create(pods.path, {"metadata": metadata, **template})

    members = placed(claims, pods, "bert-", 4)

    assert bandwidth(set().union(*(gpus for _, gpus in members.values()))) == best(4)
    pods.api.delete(f"{path}/bert")


def test_two_containers_share_the_gpus_of_one_claim_and_all_is_free_after_the_pod(claims, pods):
    make_template(pods, "single-gpu")
    spec = using("single-gpu")
    spec["containers"].append({**spec["containers"][0], "name": "other"})
    create_gated(pods, "both", spec)

    assert len(placed(claims, pods, "both", 1)["both"][1]) == 1
    pods.clear()
    wait_until(lambda: not pods.api.get(claims_of(pods.namespace))["items"], "its claim is gone")


@pytest.fixture
def channels(plane, templates_placed, claims):
    """The channels of ComputeDomains: one device of each of four nodes, and its class."""
    nodes = [*templates_placed, *claims.add(2, name="others")]
    expression = f"device.driver == '{CHANNELS}'"
    spec = {"selectors": [{"cel": {"expression": expression}}]}
    plane.api.create(CLASSES, {"metadata": {"name": CHANNEL_CLASS}, "spec": spec})
    for node in nodes:
        plane.api.create(
            SLICES,
            {
                "metadata": {"name": f"{node}-channels"},
                "spec": {
                    "driver": CHANNELS,
                    "nodeName": node,
                    "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
                    "devices": [{"name": f"channel-{i}"} for i in range(4)],
                },
            },
        )
    yield nodes
    for node in nodes:
        plane.api.delete(f"{SLICES}/{node}-channels")
    plane.api.delete(f"{CLASSES}/{CHANNEL_CLASS}")


def test_a_gang_with_channels_of_a_compute_domain_is_in_one_clique(claims, pods, channels):
    """The claims of the channels are left to kube-scheduler."""
    cliques = {node: f"fabric.{i % 2}" for i, node in enumerate(channels)}
    for node, clique in cliques.items():
        pods.api.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {keys.GFD_CLIQUE: clique}}})
    make_template(pods, "eight", 8)
    make_template(pods, "channel", 1, CHANNEL_CLASS)
    for i in range(2):
        create_gated(pods, f"imex-{i}", using("eight", "channel"), labels=gang_labels("imex", 2))

    members = placed(claims, pods, "imex-", 2)

    assert all(gpus == set(range(8)) for _, gpus in members.values())
    assert len({cliques[node] for node, _ in members.values()}) == 1
    drivers = [
        {one["driver"] for one in claim["status"]["allocation"]["devices"]["results"]}
        for claim in pods.api.get(claims_of(pods.namespace))["items"]
    ]
    assert sorted(map(sorted, drivers)) == [[CHANNELS]] * 2 + [[keys.DRA_GPU_DRIVER]] * 2


def test_a_gang_gets_the_gpus_that_its_selectors_choose(claims, pods):
    """By a product as in NVIDIA's examples, and by UUIDs of one node, of which it gets the best."""
    node = min(claims.gpus)
    chosen = [gpu.uuid for gpu in claims.gpus[node][2:7]]
    attributes = f"device.attributes['{keys.DRA_GPU_DRIVER}']"
    expressions = (
        f"{attributes}.productName.lowerAscii().matches('^.*v100.*$')",
        f"{attributes}.uuid in {chosen}",
    )
    selectors = [{"cel": {"expression": text}} for text in expressions]
    make_template(pods, "chosen", 2, selectors=selectors)
    for i in range(2):
        create_gated(pods, f"chosen-{i}", using("chosen"), labels=gang_labels("chosen", 2))

    members = placed(claims, pods, "chosen-", 2)

    assert {name for name, _ in members.values()} == {node}
    gpus = set().union(*(gpus for _, gpus in members.values()))
    assert gpus < {2, 3, 4, 5, 6}
    assert bandwidth(gpus) == max(map(bandwidth, combinations(range(2, 7), 4)))


def test_pods_with_two_claims_have_the_gpus_of_both(claims, pods):
    """The two GPUs of one of the claims have a common PCIe root."""
    make_template(pods, "pair", 2, constraints=[{"matchAttribute": PCIE_ROOT}])
    make_template(pods, "single", 1)
    for i in range(2):
        create_gated(pods, f"twice-{i}", using("pair", "single"), labels=gang_labels("twice", 2))
    members = wait_for(
        lambda: (
            (held := {n: r for n, r in recorded(pods).items() if n.startswith("twice-")})
            and len(held) == len({*held} & {*pods.bound()}) == 2
            and held
        ),
        "both are bound",
        PATIENCE,
    )
    held, roots = {}, {gpu.uuid: gpu.pcie_root for some in claims.gpus.values() for gpu in some}
    for claim in pods.api.get(claims_of(pods.namespace))["items"]:
        (user,) = claim["status"]["reservedFor"]
        uuids = list(map(claims._uuid, claim["status"]["allocation"]["devices"]["results"]))
        assert len({roots[uuid] for uuid in uuids}) == 1
        held.setdefault(user["name"], []).extend(uuids)

    assert {name: frozenset(uuids) for name, uuids in held.items()} == members
    assert [len(uuids) for uuids in held.values()] == [3, 3]


NAMED = "resourceClaimName"


@pytest.fixture
def named_claims(pods):
    """Make claims that no pod owns, and delete them after their pods."""
    made = []

    def make(name, count=1):
        make_claim(pods, name, count)
        made.append(name)

    yield make
    pods.clear()
    for name in made:
        pods.api.delete(f"{claims_of(pods.namespace)}/{name}")


def test_a_gang_whose_pods_name_a_claim_each_has_one_of_the_best_sets(claims, pods, named_claims):
    for i in range(2):
        named_claims(f"own-{i}", 2)
        create_gated(pods, f"own-{i}", using(f"own-{i}", field=NAMED), labels=gang_labels("own", 2))

    members = placed(claims, pods, "own-", 2)

    assert len({node for node, _ in members.values()}) == 1
    assert bandwidth(set().union(*(gpus for _, gpus in members.values()))) == best(4)
    pods.clear()
    wait_until(lambda: claims.allocated(pods.namespace) == {}, "the claims have no devices")
    assert len(pods.api.get(claims_of(pods.namespace))["items"]) == 2


def test_two_pods_that_name_one_claim_share_its_gpu(claims, pods, named_claims):
    """The first one is placed; kube-scheduler binds the second one to the node of the claim."""
    named_claims("shared")
    path = f"{claims_of(pods.namespace)}/shared"
    for name in ("first", "second"):
        create_gated(pods, name, using("shared", field=NAMED))

    wait_until(lambda: {"first", "second"} <= {*pods.bound()}, "both are bound", PATIENCE)

    status = pods.api.get(path)["status"]
    assert sorted(user["name"] for user in status["reservedFor"]) == ["first", "second"]
    (result,) = status["allocation"]["devices"]["results"]
    ((owner, uuids),) = recorded(pods).items()
    assert uuids == {claims._uuid(result)}
    made = pods.all()
    assert {pod["spec"]["nodeName"] for pod in made.values()} == {result["pool"]}
    (other,) = {"first", "second"} - {owner}
    assert "claim shared" in made[other]["metadata"]["annotations"][keys.LEFT_TO_SCHEDULER]

    pods.api.delete(f"{pods.path}/{owner}", gracePeriodSeconds=0)
    wait_until(lambda: owner not in pods.all(), "the first pod is gone")
    # The GPU stays the second one's: the others of both nodes are planned without it.
    make_template(pods, "eight-gpus", 8)
    create_gated(pods, "eight", using("eight-gpus"))
    members = placed(claims, pods, "eight", 1)
    assert members["eight"][0] != result["pool"]


def test_a_pod_that_names_a_claim_again_after_its_pod_gets_gpus(claims, pods, named_claims):
    """kube-controller-manager may take the devices from the claim before or after admission."""
    named_claims("again")
    for i in range(3):
        # kwok deletes a pod that ends by its name, so that it could hit a new pod of the same name.
        create_gated(pods, f"user-{i}", using("again", field=NAMED))
        placed(claims, pods, f"user-{i}", 1)
        pods.api.delete(f"{pods.path}/user-{i}", gracePeriodSeconds="0")


def test_what_is_not_evaluated_is_not_gated(pods):
    # More GPUs than a node has: a pod that is bound before its nodes are fenced has no Event.
    make_template(pods, "sum", 9, selectors=[{"cel": {"expression": "1 + 1 == 3"}}])

    pods.create(name="left", labels=gang_labels("left", 2), spec=using("sum"))

    assert gates(pods.all()["left"]) == []
    assert keys.CLAIMED_GPUS not in pods.all()["left"]["metadata"].get("annotations", {})
    wait_for_event(pods, "ClaimLeftToScheduler", "has a selector that is not evaluated", of="Pod")


def test_members_have_the_gpus_of_the_template_of_their_time(claims, pods):
    make_template(pods, "some-gpus", 2)
    for i in range(2):
        create_gated(pods, f"late-{i}", using("some-gpus"), labels=gang_labels("late", 3))
    claimed = claims_of(pods.namespace)
    wait_until(lambda: len(pods.api.get(claimed)["items"]) == 2, "two claims are made")
    # The template is replaced while the gang waits for its third member.
    pods.api.delete(f"{templates_of(pods)}/some-gpus")
    make_template(pods, "some-gpus", 3)

    def is_read():
        made = pods.create(name="probe", spec=using("some-gpus"), dryRun="All")
        return made["metadata"]["annotations"][keys.CLAIMED_GPUS] == '{"claim-0/gpu":3}'

    wait_until(is_read, "admission has read the new template")
    create_gated(pods, "late-2", using("some-gpus"), labels=gang_labels("late", 3))

    members = placed(claims, pods, "late-", 3)

    assert sorted(len(gpus) for _, gpus in members.values()) == [2, 2, 3]


def test_a_pod_waits_for_the_claim_of_its_template_and_gets_nothing_by_another(plane, claims, pods):
    """A tenant makes it while kube-controller-manager is away, which takes it for its own."""
    make_template(pods, "one-gpu")
    spec = using("one-gpu")
    # Until the fence of a new node is some seconds old, this is the reason.
    create_gated(pods, "first", spec)
    placed(claims, pods, "first", 1)
    (first,) = pods.api.get(claims_of(pods.namespace))["items"]
    pods.clear()
    claimed = claims_of(pods.namespace)
    wait_until(lambda: not pods.api.get(claimed)["items"], "no claim is left")

    with plane.without("kube-controller-manager"):
        pod = create_gated(pods, "solo", spec)
        wait_for_event(pods, "WaitingForGPUs", "kube-controller-manager has not made claim")
        owner = {"apiVersion": "v1", "kind": "Pod", "controller": True}
        metadata = {
            "name": "forged",
            "ownerReferences": [{**owner, "name": "solo", "uid": pod["metadata"]["uid"]}],
            "annotations": first["metadata"]["annotations"],
        }
        first["spec"]["devices"]["requests"][0]["exactly"]["count"] = 8
        pods.api.create(claimed, {"metadata": metadata, "spec": first["spec"]})

    def names_forged():
        status = pods.all()["solo"]["status"]
        made = status.get("resourceClaimStatuses", ())
        return any(one.get("resourceClaimName") == "forged" for one in made)

    wait_until(names_forged, "the pod has the forged claim", PATIENCE)
    wait_for_event(pods, "WaitingForGPUs", "asks for other devices than when the pod was created")
    assert claims.allocated(pods.namespace) == {}
    assert gates(pods.all()["solo"]) == [keys.GANG]
