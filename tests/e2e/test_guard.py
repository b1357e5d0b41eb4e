"""The guard on a real API server: who may say which GPUs a pod has, by whichever way."""

from itertools import product
from string import ascii_lowercase, digits

import pytest
from controlplane.api import refusal
from controlplane.pods import a_pod as pod
from controlplane.pods import container
from controlplane.process import wait_until

from linkwise.admission.patch.device_variables import NO_GPU
from linkwise.cluster import container_variables, keys

GATE = {"name": keys.GANG}
RECORD = {keys.ALLOCATION: '{"node": "none", "gpus": []}'}
GPU = {keys.GPU_WHOLE: "1"}

pytestmark = [pytest.mark.usefixtures("shipped"), pytest.mark.versions]


@pytest.fixture
def pods(namespace):
    return f"/api/v1/namespaces/{namespace}/pods"


def gated(name, **given):
    return pod(name, GPU, schedulingGates=[GATE], **given)


def place(scorer, pods, name):
    """Write a record and take the gate off, as the scorer does: in one patch."""
    metadata = scorer.get(f"{pods}/{name}")["metadata"]
    annotations = {**metadata.get("annotations", {}), **RECORD}
    steps = [
        {"op": "add", "path": "/metadata/annotations", "value": annotations},
        {"op": "remove", "path": "/spec/schedulingGates"},
    ]
    return scorer.patch(f"{pods}/{name}", steps, "json")


def ephemeral(**given):
    return {"name": "debug", "image": "registry.example/none", **given}


ALL = {"name": container_variables.ENV_VISIBLE_DEVICES, "value": "all"}
NULL = {"name": "null", "hostPath": {"path": "/dev/null"}}
VOID = {"name": container_variables.ENV_VISIBLE_DEVICES, "value": NO_GPU}


@pytest.mark.parametrize(
    "key",
    [
        keys.ALLOCATION,
        keys.TERM,
        f"{keys.VISIBLE_DEVICES_OF}main",
        keys.NVIDIA_CDI_DOMAIN,
        f"{keys.NVIDIA_CDI_DOMAIN}/pod",
        f"{keys.NVIDIA_CDI_CONTAINER}main",
        f"{keys.CDI_ANNOTATION_PREFIX}any",
    ],
)
def test_an_allocation_cannot_be_written_by_any_of_the_ways_there_are(plane, pods, key):
    api, record = plane.api, {key: "0"}
    api.create(pods, gated("held"))
    api.create(pods, pod("free", GPU, schedulerName=keys.SCHEDULER))
    change = {"metadata": {"annotations": record}}
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "free", "annotations": record},
        "target": {"kind": "Node", "name": "none"},
    }
    bindings = pods.removesuffix("pods") + "bindings"
    ways = {
        "pods, create": lambda: api.create(pods, gated("new", annotations=record)),
        "pods, update": lambda: api.patch(f"{pods}/held", change),
        "pods/status": lambda: api.patch(f"{pods}/held/status", change),
        "pods/binding": lambda: api.create(f"{pods}/free/binding", binding),
        "bindings": lambda: api.create(bindings, binding),
    }
    reply = {way: refusal(call) for way, call in ways.items()}
    assert {
        way for way, text in reply.items() if "written by linkwise-scorer alone" in text
    } == set(ways), reply
    # What has no way to change annotations must go on having none.
    for way in ("ephemeralcontainers", "resize"):
        refusal(lambda way=way: api.patch(f"{pods}/held/{way}", change, "strategic"))
    assert key not in api.get(f"{pods}/held")["metadata"].get("annotations", {})


OTHERS = (
    *(keys.MEM_IDX, keys.MEM_POD, keys.MEM_DEV, keys.GPUSHARE_ALLOCATION, keys.GPUSHARE_CORE),
    *(keys.ARENA_GPU_GROUP, keys.ARENA_GPU_VISIBLE),
)


def test_what_other_plugins_choose_gpus_by_is_guarded_in_pods_that_linkwise_places(
    plane, pods, scorer
):
    plane.api.create(pods, gated("held"))
    plane.api.create(pods, gated("placed"))
    plane.api.create(pods, pod("single", GPU, schedulerName=keys.SCHEDULER))
    plane.api.create(pods, pod("free"))
    place(scorer, pods, "placed")

    def change(name, key, way=""):
        body = {"metadata": {"annotations": {key: "3"}}}
        return refusal(lambda: plane.api.patch(f"{pods}/{name}{way}", body))

    for key in OTHERS:
        new = gated("new", annotations={key: "3"})
        reply = [refusal(lambda new=new: plane.api.create(pods, new))]
        reply += [
            change(name, key, way)
            for name in ("held", "placed", "single")
            for way in ("", "/status")
        ]
        assert all("gpushare's scheduler extender" in text for text in reply), (key, reply)
        assert change("free", key) == ""
    # gpushare's plugin writes these.
    for key in (keys.MEM_ASSIGNED, keys.MEM_ASSUME_TIME):
        assert change("placed", key) == ""


@pytest.mark.parametrize("limits", [{}, {keys.NVIDIA_GPU: "1"}], ids=["no GPU", "NVIDIA's plugin"])
def test_cdi_annotations_are_free_where_linkwise_chooses_no_gpus(plane, pods, limits):
    annotations = {f"{keys.NVIDIA_CDI_CONTAINER}main": "management.nvidia.com/gpu=all"}
    plane.api.create(pods, pod("operand", limits, annotations=annotations))
    plane.api.patch(f"{pods}/operand/status", {"status": {"message": "a kubelet's"}})


def test_a_record_cannot_be_taken_away_or_changed_once_it_is_there(plane, pods, scorer):
    plane.api.create(pods, gated("placed"))
    place(scorer, pods, "placed")
    for value in (None, "{}x"):
        change = {"metadata": {"annotations": {keys.ALLOCATION: value}}}
        for path in (f"{pods}/placed", f"{pods}/placed/status"):
            reply = refusal(lambda path=path, change=change: plane.api.patch(path, change))
            assert "written by linkwise-scorer alone" in reply


def test_only_the_scorer_removes_our_gate_and_other_gates_are_free(plane, pods, scorer):
    plane.api.create(pods, pod("two", GPU, schedulingGates=[GATE, {"name": "example.com/other"}]))
    gates = "/spec/schedulingGates"
    reply = refusal(
        lambda: plane.api.patch(f"{pods}/two", [{"op": "remove", "path": gates}], "json")
    )
    assert "removed by linkwise-scorer alone" in reply
    plane.api.patch(f"{pods}/two", [{"op": "remove", "path": f"{gates}/1"}], "json")
    assert "schedulingGates" not in place(scorer, pods, "two")["spec"]


def test_our_gate_cannot_be_removed_by_any_request(plane, pods):
    api = plane.api
    held = api.create(pods, gated("held"))
    held["apiVersion"], held["kind"] = "v1", "Pod"
    ungated = {**held, "spec": {**held["spec"], "schedulingGates": []}}
    merge = {"spec": {"schedulingGates": None}}
    strategic = {"spec": {"schedulingGates": [{"$patch": "delete", "name": keys.GANG}]}}
    other = {"spec": {"schedulingGates": [{"$patch": "replace"}]}}
    binding = {"metadata": {"name": "held"}, "target": {"kind": "Node", "name": "none"}}
    path = f"{pods}/held"
    refused = {
        "update": lambda: api.update(path, ungated),
        "merge": lambda: api.patch(path, merge),
        "strategic, delete": lambda: api.patch(path, strategic, "strategic"),
        "strategic, replace": lambda: api.patch(path, other, "strategic"),
        "json": lambda: api.patch(
            path, [{"op": "remove", "path": "/spec/schedulingGates/0"}], "json"
        ),
    }
    reply = {way: refusal(call) for way, call in refused.items()}
    assert {
        way for way, text in reply.items() if "removed by linkwise-scorer alone" in text
    } == set(refused), reply
    # These are no ways to remove a gate, and must go on being none.
    for way in ("status", "ephemeralcontainers", "resize"):
        refusal(lambda way=way: api.patch(f"{path}/{way}", merge))
        refusal(lambda way=way: api.update(f"{path}/{way}", ungated))
    assert "has non-empty .spec.schedulingGates" in refusal(
        lambda: api.create(f"{path}/binding", {"apiVersion": "v1", "kind": "Binding", **binding})
    )
    after = api.get(path)["spec"]
    assert (after["schedulingGates"], after.get("nodeName")) == ([GATE], None)


def test_the_scorer_binds_a_pod_and_says_in_the_same_request_which_gpus_it_has(pods, plane, scorer):
    # With this name the stock scheduler leaves it alone.
    plane.api.create(pods, pod("single", GPU, schedulerName=keys.SCHEDULER))
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "single", "annotations": RECORD},
        "target": {"kind": "Node", "name": "none"},
    }
    scorer.create(f"{pods}/single/binding", binding)
    bound = plane.api.get(f"{pods}/single")
    assert bound["spec"]["nodeName"] == "none"
    assert bound["metadata"]["annotations"] == RECORD


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({}, id="the image decides"),
        pytest.param({"env": [ALL]}, id="devices"),
        pytest.param({"env": [VOID, ALL]}, id="the last counts"),
        pytest.param({"env": [{"name": "A", "value": "b"}]}, id="another variable"),
        pytest.param({"envFrom": [{"configMapRef": {"name": "any"}}]}, id="envFrom"),
    ],
)
@pytest.mark.parametrize("stage", ["placed", "gated", "before a scheduler binds it"])
def test_an_ephemeral_container_of_a_pod_with_gpus_says_that_it_sees_none(
    plane, pods, scorer, given, stage
):
    if stage == "placed":
        plane.api.create(pods, gated("asking"))
        place(scorer, pods, "asking")
    elif stage == "gated":
        plane.api.create(pods, pod("asking", {keys.NVIDIA_GPU: "1"}, schedulingGates=[GATE]))
    else:
        plane.api.create(pods, pod("asking", GPU, schedulerName=keys.SCHEDULER))
    path = f"{pods}/asking/ephemeralcontainers"
    change = {"spec": {"ephemeralContainers": [ephemeral(**given)]}}
    assert "sees no GPU" in refusal(lambda: plane.api.patch(path, change, "strategic"))
    harmless = {"spec": {"ephemeralContainers": [ephemeral(env=[VOID])]}}
    assert refusal(lambda: plane.api.patch(path, harmless, "strategic")) == ""


def test_of_very_many_ephemeral_containers_or_variables_none_is_added(plane, pods):
    plane.api.create(pods, pod("plain"))
    variables = [{"name": f"A{number}"} for number in range(1025)]
    many = [ephemeral(name=f"c{number}") for number in range(257)]
    for added in ([ephemeral(env=variables)], many):
        change = {"spec": {"ephemeralContainers": added}}
        reply = refusal(
            lambda change=change: plane.api.patch(
                f"{pods}/plain/ephemeralcontainers", change, "strategic"
            )
        )
        assert "256 ephemeral containers, each with 1024 variables and mounts" in reply


def test_an_ephemeral_container_of_another_pod_may_be_any_but_one_that_chooses_gpus(plane, pods):
    plane.api.create(pods, pod("plain", volumes=[NULL]))
    path = f"{pods}/plain/ephemeralcontainers"

    def add(name, **given):
        change = {"spec": {"ephemeralContainers": [ephemeral(name=name, **given)]}}
        return refusal(lambda: plane.api.patch(path, change, "strategic"))

    assert "sees no GPU" in add("chooses", env=[ALL])
    for name in (
        container_variables.ENV_IMEX_CHANNELS,
        container_variables.ENV_MIG_CONFIG,
        container_variables.ENV_MIG_MONITOR,
    ):
        assert "sees no GPU" in add("chooses", env=[{"name": name, "value": "0"}])
    for mounted in (
        f"{container_variables.DEVICE_MOUNTS}/all",
        f"{container_variables.DEVICE_MOUNTS[1:]}/imex/0",
    ):
        mount = {"name": "null", "mountPath": mounted}
        assert "sees no GPU" in add("chooses", env=[VOID], volumeMounts=[mount])
    assert add("plain") == ""
    other = {"name": "null", "mountPath": "/any"}
    assert add("void", env=[VOID], volumeMounts=[other]) == ""


# ---- Long lists. An API server's time for `exists` goes by the square of their length.

KEYS = ["".join(letters) for letters in product(ascii_lowercase + digits, repeat=3)]
"""46,656 names: about as many annotations as etcd stores of one pod."""


def test_pod_with_many_annotations_is_writable_and_guarded(plane, pods):
    plane.api.create(pods, pod("crowded", annotations=dict.fromkeys(KEYS, "")))
    path = f"{pods}/crowded"
    plane.api.patch(f"{path}/status", {"status": {"message": "a kubelet's"}})
    plane.api.patch(path, {"metadata": {"annotations": {KEYS[0]: "another"}}})
    for key in (keys.ALLOCATION, f"{keys.VISIBLE_DEVICES_OF}main"):
        for way in (path, f"{path}/status"):
            change = {"metadata": {"annotations": {key: "0"}}}
            reply = refusal(lambda way=way, change=change: plane.api.patch(way, change))
            assert "written by linkwise-scorer alone" in reply


def test_a_pod_with_gpus_gets_no_annotations_beyond_a_thousand(plane, pods):
    plane.api.create(pods, gated("placed", annotations=dict.fromkeys(KEYS[:1024], "")))
    plane.api.patch(f"{pods}/placed", {"metadata": {"annotations": {KEYS[0]: "another"}}})
    change = {"metadata": {"annotations": {KEYS[1024]: ""}}}
    reply = refusal(lambda: plane.api.patch(f"{pods}/placed", change))
    assert "with GPUs and more than 1024 annotations" in reply


def test_of_a_pod_of_very_many_gates_none_is_removed_and_all_else_is_written(plane, pods):
    gates = [GATE, *({"name": f"example.com/{number}"} for number in range(1024))]
    plane.api.create(pods, pod("crowded", schedulingGates=gates))
    path = f"{pods}/crowded"
    for index in (0, 1024):
        step = [{"op": "remove", "path": f"/spec/schedulingGates/{index}"}]
        reply = refusal(lambda step=step: plane.api.patch(path, step, "json"))
        assert "the gates of a pod that has more than 1024 stay" in reply
    plane.api.patch(path, {"metadata": {"labels": {"any": "x"}}})
    plane.api.patch(f"{path}/status", {"status": {"message": "a controller's"}})


def test_a_pod_of_very_many_containers_gets_no_annotations(plane):
    # Elsewhere linkwise-placed refuses such a pod; the guard holds where the system is, too.
    path = "/api/v1/namespaces/kube-system/pods"
    many = [container(name=f"c{number}") for number in range(1025)]

    def create(**given):
        made = pod("crowded", containers=many, **given)
        return refusal(lambda: plane.api.create(path, made, dryRun="All"))

    assert "a pod with more than 1024 containers" in create(annotations={"any": "x"})
    assert create() == ""


def test_controllers_of_jobs_and_stateful_sets_work_unhindered(
    plane, pods, namespace, scorer, nodes
):
    nodes({"name": "gpu", "count": 2, "machine": "dgx1-v100", "mode": "topology"})
    labels = {"app": "set"}
    spec = gated("any")["spec"]
    template = {"metadata": {"labels": labels}, "spec": spec}
    sets = f"/apis/apps/v1/namespaces/{namespace}/statefulsets"
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    plane.api.create(
        sets,
        {
            "metadata": {"name": "set"},
            "spec": {
                "replicas": 2,
                "podManagementPolicy": "Parallel",
                "selector": {"matchLabels": labels},
                "serviceName": "set",
                "template": template,
            },
        },
    )
    finishing = {"metadata": {}, "spec": {**spec, "restartPolicy": "Never"}}
    job = {"completions": 2, "parallelism": 2, "template": finishing}
    plane.api.create(jobs, {"metadata": {"name": "job"}, "spec": job})

    def waiting():
        items = plane.api.get(pods)["items"]
        return [one["metadata"]["name"] for one in items if "schedulingGates" in one["spec"]]

    wait_until(lambda: len(waiting()) == 4, "four pods wait")
    for name in waiting():
        place(scorer, pods, name)
    wait_until(
        lambda: plane.api.get(f"{sets}/set")["status"].get("readyReplicas") == 2, "the set is ready"
    )
    wait_until(
        lambda: plane.api.get(f"{jobs}/job")["status"].get("succeeded") == 2, "the Job is done"
    )
    plane.api.delete(f"{pods}/set-0")
    wait_until(lambda: waiting() == ["set-0"], "the set makes its pod again")


# ---- The mode of a node, under both names.


@pytest.fixture
def node(plane):
    """The path of a node that has no label."""
    path = "/api/v1/nodes"
    made = plane.api.create(path, {"metadata": {"generateName": "mode-"}})["metadata"]["name"]
    yield f"{path}/{made}"
    plane.api.delete(f"{path}/{made}")


def test_each_label_of_the_mode_follows_the_other_one(plane, node):
    def labelled(**labels):
        """Label the node; return both labels."""
        names = {"mode": keys.MODE, "alias": keys.NODE_MODE}
        written = {names[key]: value for key, value in labels.items()}
        found = plane.api.patch(node, {"metadata": {"labels": written}})["metadata"]
        return tuple(found.get("labels", {}).get(key) for key in keys.MODE_LABELS)

    wait_until(lambda: labelled(mode="topology") == ("topology", "topology"), "it is in force")
    assert labelled(mode="share") == ("share", "share")
    assert labelled(alias="mps") == ("mps", "mps")
    # Without the alias no pod would come.
    assert labelled(alias=None) == ("mps", "mps")
    assert labelled(mode=None) == (None, None)
    # A node of ACK stays as it is; what disagrees is for people to mend.
    assert labelled(alias="topology") == (None, "topology")
    assert labelled(mode="share") == ("share", "topology")
    assert labelled(mode="topology") == ("topology", "topology")


def test_a_node_that_had_its_mode_before_gets_the_alias_with_its_status(plane, node):
    status = {"metadata": {"labels": {keys.MODE: "topology"}}, "status": {"phase": "Running"}}

    def labels():
        return plane.api.patch(f"{node}/status", status)["metadata"].get("labels", {})

    wait_until(lambda: labels().get(keys.NODE_MODE) == "topology", "it is completed")
