"""Updates that write what a manifest states over what admission has changed."""

import json

import jsonpatch
import msgspec
import pytest
from support.counting import calls

from linkwise.admission.operations import encode_patch
from linkwise.admission.patch.reapplied import UpdatedPod, left_as_it_is
from linkwise.cluster import keys

ENV, OTHER = "NVIDIA_VISIBLE_DEVICES", {"name": "A", "value": "a"}
OURS = {"name": ENV, "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['x']"}}}
GPUS = {keys.NVIDIA_GPU: "2"}
CLAIMS = [{"name": "gpus", "request": "container-0"}]
IN = {"key": "zone", "operator": "In", "values": ["a"]}
MODE = {"key": "mode", "operator": "In", "values": ["topology"]}
NODE = {"key": "metadata.name", "operator": "In", "values": ["gpu-0"]}


def a_pod(terms=None, annotations=None, part="containers", **container):
    spec = {"containers": [{"name": "x"}], part: [{"name": "c", **container}]}
    if terms:
        name = "requiredDuringSchedulingIgnoredDuringExecution"
        spec["affinity"] = {"nodeAffinity": {name: {"nodeSelectorTerms": terms}}}
    return {"metadata": {"annotations": annotations or {}}, "spec": spec}


def after(old, new):
    """Return the pod as the update leaves it."""
    typed = (msgspec.convert(each, UpdatedPod) for each in (old, new))
    patch = encode_patch(tuple(left_as_it_is(*typed)))
    return jsonpatch.apply_patch(new, json.loads(patch))


CLAIMED = {keys.CLAIMED_GPUS: '{"container-0":2}'}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(
            a_pod(env=[OURS, OTHER]), a_pod(env=[{**OURS, "value": "all"}, OTHER]), id="variable"
        ),
        pytest.param(
            a_pod(env=[OTHER, OURS]), a_pod(env=[OURS, OTHER]), id="order of our variable"
        ),
        pytest.param(
            a_pod(env=[OTHER]), a_pod(env=[OTHER, {"name": ENV, "value": "all"}]), id="env"
        ),
        pytest.param(a_pod(), a_pod(env=[{"name": ENV, "value": "all"}]), id="all variables"),
        pytest.param(
            a_pod(annotations=CLAIMED, resources={"limits": {"cpu": "1"}, "claims": CLAIMS}),
            a_pod(
                annotations=CLAIMED,
                resources={"limits": {"cpu": "1", **GPUS}, "requests": GPUS, "claims": CLAIMS},
            ),
            id="claim",
        ),
        pytest.param(
            a_pod(part="initContainers", annotations=CLAIMED, resources={"claims": CLAIMS}),
            a_pod(
                part="initContainers",
                annotations=CLAIMED,
                resources={"limits": {keys.NVIDIA_GPU: "1"}, "claims": CLAIMS},
            ),
            id="claim of an init container",
        ),
        pytest.param(
            a_pod(resources={"limits": {keys.NVIDIA_GPU_SHARED: "2"}}),
            a_pod(resources={"limits": {keys.NVIDIA_GPU_SHARED: "2", **GPUS}}),
            id="renamed resource",
        ),
        pytest.param(
            a_pod([{"matchExpressions": [IN, MODE], "matchFields": [NODE]}]),
            a_pod([{"matchExpressions": [IN]}]),
            id="node affinity",
        ),
    ],
)
def test_what_an_unchanged_manifest_writes_leaves_the_pod_as_it_is(old, new):
    found = after(old, new)

    assert found["spec"].get("affinity") == old["spec"].get("affinity")
    for part in ("containers", "initContainers"):
        for one, other in zip(found["spec"].get(part, ()), old["spec"].get(part, ()), strict=True):
            resources, before = one.get("resources", {}), other.get("resources", {})
            assert one.get("env") == other.get("env")
            for each in ("limits", "requests", "claims"):
                assert (resources.get(each) or {}) == (before.get(each) or {})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(
            a_pod(env=[OURS, OTHER]), a_pod(env=[OURS, {"name": "A", "value": "b"}]), id="variable"
        ),
        pytest.param(a_pod(env=[OURS]), a_pod(env=[OURS, OTHER]), id="another variable"),
        pytest.param(
            a_pod(annotations=CLAIMED, resources={"claims": CLAIMS}),
            a_pod(
                annotations=CLAIMED,
                resources={"limits": {keys.NVIDIA_GPU: "3"}, "claims": CLAIMS},
            ),
            id="more GPUs",
        ),
        pytest.param(
            a_pod(annotations=CLAIMED, resources={"limits": {"cpu": "1"}, "claims": CLAIMS}),
            a_pod(
                annotations=CLAIMED, resources={"limits": {"cpu": "2", **GPUS}, "claims": CLAIMS}
            ),
            id="more CPU",
        ),
        pytest.param(
            a_pod(), a_pod(resources={"limits": {keys.NVIDIA_GPU: "1"}}), id="GPUs without a claim"
        ),
        pytest.param(
            a_pod([{"matchExpressions": [IN, MODE]}]),
            a_pod([{"matchExpressions": [{**IN, "values": ["b"]}]}]),
            id="another zone",
        ),
        pytest.param(a_pod([{"matchExpressions": [IN]}]), a_pod(), id="no affinity"),
    ],
)
def test_what_a_person_changes_is_left_to_kubernetes(old, new):
    assert after(old, new) == new


def test_an_annotation_that_is_no_record_of_a_claim_is_none():
    broken = a_pod(annotations={keys.CLAIMED_GPUS: "{"}, resources={"claims": CLAIMS})

    assert after(broken, broken) == broken


def test_terms_are_compared_in_time_linear_in_their_number():
    def work(count):
        expressions = [{**IN, "values": [str(i)]} for i in range(count)]
        old, new = (
            msgspec.convert(a_pod([{"matchExpressions": [*expressions, *more]}]), UpdatedPod)
            for more in ([MODE], [])
        )
        return lambda: list(left_as_it_is(old, new))

    work(1)()
    assert calls(work(4000)) <= 2.2 * calls(work(2000))
