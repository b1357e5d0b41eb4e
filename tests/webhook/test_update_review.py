"""Reviews of updates."""

import base64
import json

import pytest

from webhook.review import parse_pod_review
from webhook.update_review import update_response

OURS = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}


def a_review(value, **fields):
    def pod(variable):
        return {"spec": {"containers": [{"name": "c", "env": [variable]}]}}

    request = {
        "uid": "1",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "operation": "UPDATE",
        "object": pod({**OURS, "value": value}),
        "oldObject": pod(OURS),
        **fields,
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return json.dumps(review, separators=(",", ":")).encode()


def answer(body):
    response = json.loads(update_response(body, parse_pod_review(body)))["response"]
    assert (response["uid"], response["allowed"]) == ("1", True)
    return json.loads(base64.b64decode(response.get("patch", "W10=")))


def test_an_update_keeps_what_admission_has_written():
    assert answer(a_review("all")) == [
        {"op": "add", "path": "/spec/containers/0/env", "value": [OURS]}
    ]
    assert answer(a_review("void")) == []


@pytest.mark.parametrize(
    "fields",
    [
        {"operation": "DELETE"},
        {"subResource": "resize"},
        {"kind": {"group": "apps", "version": "v1", "kind": "Deployment"}},
        {"object": None},
        {"object": {"spec": {"containers": 7}}},
        {"oldObject": None},
    ],
    ids=repr,
)
def test_other_updates_pass_unchanged(fields):
    assert answer(a_review("all", **fields)) == []
