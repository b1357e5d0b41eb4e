"""Recorded responses of an API server 1.36.3 with the shipped policies."""

import json
from pathlib import Path

import pytest

from linkwise.runtime.kube.errors import Unreachable, api_error
from scorer.fence import is_leadership_lost

RESPONSES = json.loads(Path(__file__).with_name("refusals.json").read_text())


def error(response):
    return api_error(response["status"], json.dumps(response["body"]).encode())


@pytest.mark.parametrize("name", RESPONSES)
def test_only_a_refusal_by_the_fence_ends_leadership(name):
    assert is_leadership_lost(error(RESPONSES[name])) == name.startswith("the fence, ")


@pytest.mark.parametrize("name", RESPONSES)
def test_no_other_status_than_403_ends_leadership(name):
    assert not is_leadership_lost(error({**RESPONSES[name], "status": 422}))


def test_names_and_messages_of_users_do_not_end_leadership():
    named = [
        name
        for name, response in RESPONSES.items()
        if "linkwise-fence" in response["body"]["message"]
    ]

    assert {name for name in named if not name.startswith("the fence, ")} == {
        "annotations too long",
        "no permission to update",
        "no permission to patch",
        "no permission to bind",
        "a quota of the fence's name",
        "another policy that quotes the fence's words",
        "not found",
        "a binding of a gated pod",
    }


def test_a_missing_response_does_not_end_leadership():
    assert not is_leadership_lost(Unreachable("no answer from linkwise-fence"))
