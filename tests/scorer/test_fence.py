"""Answers of an API server 1.36.3 with the shipped policies, recorded as it sent them."""

import json
from pathlib import Path

import pytest

from runtime.kube.errors import Unreachable, refused
from scorer.fence import is_leadership_lost

ANSWERS = json.loads(Path(__file__).with_name("refusals.json").read_text())


def error(answer):
    return refused(answer["status"], json.dumps(answer["body"]).encode())


@pytest.mark.parametrize("name", ANSWERS)
def test_only_the_fence_itself_deposes_a_leader(name):
    assert is_leadership_lost(error(ANSWERS[name])) == name.startswith("the fence, ")


@pytest.mark.parametrize("name", ANSWERS)
def test_no_other_status_than_403_deposes_a_leader(name):
    assert not is_leadership_lost(error({**ANSWERS[name], "status": 422}))


def test_nobody_is_deposed_by_a_name_or_a_message_of_users():
    named = [name for name, one in ANSWERS.items() if "linkwise-fence" in one["body"]["message"]]

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


def test_nobody_is_deposed_by_no_answer():
    assert not is_leadership_lost(Unreachable("no answer from linkwise-fence"))
