import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from linkwise.admission.decide.messages import MAX_WARNING_LENGTH, MAX_WARNINGS
from linkwise.admission.dry_run.owner_warnings import (
    MAX_BYTES,
    decode_findings,
    fit_warning,
    owner_findings,
    relevant,
)
from linkwise.cluster import keys
from linkwise.cluster.nodes.capacity import Capacity
from linkwise.cluster.whatif_api import FitResult
from linkwise.policy.snapshot import PolicySnapshot
from linkwise.workloads.registry import KINDS

GANG = {keys.POD_GROUP_NAME: "bert", keys.POD_GROUP_MIN_AVAILABLE: "4"}


def template(limits=None, **metadata):
    container = {"name": "c", "resources": {"limits": limits or {keys.GPU_WHOLE: "1"}}}
    return {"metadata": metadata, "spec": {"containers": [container]}}


def apps(kind, template, **spec):
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": "serve", "namespace": "team"},
        "spec": {"replicas": 4, "template": template, **spec},
    }


def found(owner):
    text = owner if isinstance(owner, bytes) else json.dumps(owner).encode()
    encoded = owner_findings(text, "team", None, PolicySnapshot(), Capacity())
    return decode_findings(encoded)


@pytest.mark.parametrize(
    ("owner", "text"),
    [
        pytest.param(
            apps("Deployment", template(labels=GANG)),
            "LW401 Deployment serve can never be rolled out",
            id="rollout",
        ),
        pytest.param(
            apps("StatefulSet", template(labels=GANG)),
            "LW401 its pods cannot start: StatefulSet serve makes",
            id="ordered",
        ),
        pytest.param(
            apps("Deployment", template({keys.GPU_WHOLE: "500m"})),
            "its pods cannot start: ",
            id="invalid",
        ),
    ],
)
def test_an_owner_has_the_findings_of_check(owner, text):
    warnings = found(owner).warnings
    assert any(text in warning for warning in warnings), warnings


def test_an_owner_without_problems_has_pods_to_place():
    one = found(apps("Deployment", template()))
    assert one.warnings == ()
    assert one.fit_request.pods == 4
    (fit,) = one.to_place
    assert fit.pod.spec.scheduling_gates


def test_pods_that_cannot_start_are_not_placed():
    assert found(apps("StatefulSet", template(labels=GANG))).to_place == ()


@pytest.mark.parametrize(
    "owner",
    [
        pytest.param(b"{", id="cut"),
        pytest.param(b"\xff", id="no text"),
        pytest.param(b"null", id="null"),
        pytest.param(b"[]", id="list"),
        pytest.param(b"{}", id="nothing"),
        pytest.param(b"[" * 100_000, id="deep"),
        pytest.param({**apps("Deployment", None)}, id="no template"),
        pytest.param(apps("Deployment", template(), replicas=-1), id="negative"),
        pytest.param({**apps("Deployment", template()), "kind": "Unknown"}, id="another kind"),
        pytest.param({**apps("Deployment", template()), "metadata": None}, id="no metadata"),
    ],
)
def test_an_owner_that_its_api_would_reject_has_no_warning(owner):
    assert found(owner).warnings == ()


def test_thousands_of_roles_cost_few_short_warnings():
    owner = {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "bert"},
        "spec": {
            "headGroupSpec": {"template": template({keys.GPU_WHOLE: "500m"})},
            "workerGroupSpecs": [
                {"groupName": f"g{i}", "replicas": 1, "template": template({keys.GPU_WHOLE: "0.5"})}
                for i in range(800)
            ],
        },
    }
    text = json.dumps(owner).encode()
    assert len(text) <= MAX_BYTES
    warnings = found(text).warnings
    assert 0 < len(warnings) <= MAX_WARNINGS
    assert all(len(warning) <= MAX_WARNING_LENGTH for warning in warnings)


@pytest.mark.parametrize(
    ("owner", "is_read"),
    [
        pytest.param(apps("Deployment", template()), True, id="GPUs"),
        pytest.param(apps("Deployment", template({"cpu": "1"})), False, id="none"),
        pytest.param({"kind": "x" * MAX_BYTES, **template()}, False, id="too large"),
    ],
)
def test_only_small_owners_with_gpus_are_read(owner, is_read):
    text = json.dumps(owner).encode()
    assert relevant(Raw(text)) == (text if is_read else None)


@pytest.mark.parametrize(
    ("reason", "never", "text"),
    [
        pytest.param(None, False, "Linkwise: all its pods fit now", id="fits"),
        pytest.param("3 of 4 fit", False, "Linkwise: it does not fit now: 3 of 4 fit", id="waits"),
        pytest.param(
            "a\n" * 500,
            True,
            "Linkwise: it would not fit on the empty cluster either: "
            + "a\N{REPLACEMENT CHARACTER}" * 100,
            id="never",
        ),
    ],
)
def test_a_dry_run_says_whether_all_pods_fit(reason, never, text):
    fits = FitResult(True, None, [], [], None, None, None, [], None)
    other = FitResult(reason is None, None, [], [], None, None, None, [], reason, never)
    assert fit_warning([fits, other]) == text


_KEYS = st.sampled_from(
    [
        "template",
        "spec",
        "metadata",
        "replicas",
        "containers",
        "labels",
        "strategy",
        "rollingUpdate",
        "maxSurge",
        "jobTemplate",
        "workerGroupSpecs",
        "headGroupSpec",
        "mpiReplicaSpecs",
        "pytorchReplicaSpecs",
        "replicatedJobs",
        "leaderWorkerTemplate",
        "workerTemplate",
        "tasks",
        "runtimeRef",
        "trainer",
        "rayClusterSpec",
        "rayClusterConfig",
        "parallelism",
        "completions",
        "ownerReferences",
    ]
)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 1 << 40) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(_KEYS | st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(st.sampled_from(KINDS), _JSON, _JSON)
def test_any_owner_is_answered(kind, metadata, spec):
    owner = {
        "apiVersion": f"{kind.group}/v1",
        "kind": kind.name,
        "metadata": metadata,
        "spec": spec,
        "mark": template(),
    }
    assert len(found(owner).warnings) <= MAX_WARNINGS
