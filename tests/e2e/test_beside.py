"""Another mutating webhook beside ours, called before it and after it."""

from contextlib import contextmanager

import pytest
from controlplane.other_webhook import run_neighbour
from controlplane.pods import container, gates, required, variables

from linkwise.admission.patch.device_variables import NO_GPU
from linkwise.cluster import container_variables, keys

# The API server calls registrations in the order of their names; ours is "linkwise".
BEFORE, AFTER = "a-neighbour", "z-neighbour"
GANG = {keys.POD_GROUP_NAME: "g", keys.POD_GROUP_MIN_AVAILABLE: "2"}
SIDECAR = {**container({"cpu": "1"}, "sidecar"), "env": [{"name": "A", "value": "b"}]}


@pytest.fixture
def beside(plane, tmp_path):
    """Registers a neighbour that changes pods."""

    @contextmanager
    def beside(name, change):
        with run_neighbour(plane.api, tmp_path, name, change) as neighbour:
            yield neighbour

    return beside


def inject(pod):
    """A container and a label, as meshes and loggers add them, once."""
    if any(one["name"] == "sidecar" for one in pod["spec"]["containers"]):
        return []
    labels = {**pod["metadata"].get("labels", {}), "injected": "true"}
    return [
        {"op": "add", "path": "/spec/containers/-", "value": SIDECAR},
        {"op": "add", "path": "/metadata/labels", "value": labels},
    ]


def inject_first(pod):
    """As `inject`, before all other containers, whose places change."""
    return [
        {**step, "path": step["path"].replace("containers/-", "containers/0")}
        for step in inject(pod)
    ]


def devices(pod):
    """Return where each container learns its GPUs from."""
    paths = {}
    for index, one in enumerate(pod["spec"]["containers"]):
        value = variables(pod, index).get(container_variables.ENV_VISIBLE_DEVICES)
        paths[one["name"]] = value["fieldRef"]["fieldPath"] if isinstance(value, dict) else value
    return paths


OWN = f"metadata.annotations['{keys.VISIBLE_DEVICES}']"


@pytest.mark.parametrize("change", [inject, inject_first])
def test_containers_that_another_webhook_adds_before_ours_see_no_gpu(pods, beside, change):
    with beside(BEFORE, change) as neighbour:
        made = pods.create({keys.GPU_WHOLE: 1}, labels=GANG)

    assert devices(made) == {"c0": OWN, "sidecar": NO_GPU}
    assert (gates(made), required(made)) == ([keys.GANG], {keys.NODE_MODE: ["topology"]})
    assert made["metadata"]["labels"] == {**GANG, "injected": "true"}
    # It was asked again, since ours had changed the pod, and found nothing to do.
    seen = [one for one in neighbour.seen if one["metadata"].get("namespace") == pods.namespace]
    assert len(seen) == 2


@pytest.mark.parametrize("change", [inject, inject_first])
def test_containers_that_another_webhook_adds_after_ours_change_nothing_of_ours(
    pods, beside, change
):
    with beside(AFTER, change):
        made = pods.create({keys.GPU_WHOLE: 1}, labels=GANG)

    assert devices(made) == {"c0": OWN, "sidecar": None}
    assert (gates(made), required(made)) == ([keys.GANG], {keys.NODE_MODE: ["topology"]})
    assert made["metadata"]["labels"] == {**GANG, "injected": "true"}


@pytest.mark.parametrize("name", [BEFORE, AFTER])
def test_a_pod_made_beside_another_webhook_is_made_again_as_it_is(pods, beside, name):
    with beside(name, inject):
        first = pods.create({keys.GPU_MEM: 2, keys.GPU_CORE: 20})
        again = {"name": "again", "labels": first["metadata"]["labels"]}
        second = pods.api.create(pods.path, {"metadata": again, "spec": first["spec"]})

    env = second["spec"]["containers"][1]["env"]
    assert env == [
        {"name": "A", "value": "b"},
        {"name": container_variables.ENV_VISIBLE_DEVICES, "value": NO_GPU},
    ]
    first["spec"]["containers"][1]["env"] = env
    assert second["spec"] == first["spec"]


def test_terms_that_another_webhook_adds_before_ours_each_get_the_requirement(pods, beside):
    def zones(pod):
        if "affinity" in pod["spec"]:
            return []
        terms = [
            {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}
            for zone in "ab"
        ]
        needed = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        return [{"op": "add", "path": "/spec/affinity", "value": {"nodeAffinity": needed}}]

    with beside(BEFORE, zones):
        made = pods.create({keys.GPU_WHOLE: 1})

    needed = made["spec"]["affinity"]["nodeAffinity"]
    terms = needed["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    found = [{one["key"]: one["values"] for one in term["matchExpressions"]} for term in terms]
    topology = {keys.NODE_MODE: ["topology"]}
    assert found == [{"zone": ["a"], **topology}, {"zone": ["b"], **topology}]


def test_a_webhook_that_takes_our_gate_away_after_us_gets_the_pod_refused(pods, beside):
    def ungate(pod):
        present = "schedulingGates" in pod["spec"]
        return [{"op": "remove", "path": "/spec/schedulingGates"}] if present else []

    with beside(AFTER, ungate):
        message = pods.refusal({keys.GPU_WHOLE: 1})

    assert "linkwise-placed" in message
    assert pods.all() == {}


def test_gpus_that_another_webhook_requests_before_ours_are_validated(pods, beside):
    def shares(pod):
        limits = pod["spec"]["containers"][0]["resources"].get("limits", {})
        if keys.GPU_CORE in limits or keys.GPU_MEM not in limits:
            return []
        changed = {**limits, keys.GPU_CORE: "22"}
        path = "/spec/containers/0/resources"
        return [{"op": "add", "path": path, "value": {"limits": changed, "requests": changed}}]

    with beside(BEFORE, shares):
        assert "LW101" in pods.refusal({keys.GPU_MEM: 2})
