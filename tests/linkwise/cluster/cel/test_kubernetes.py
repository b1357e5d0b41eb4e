"""Expressions have the outcomes that Kubernetes' own evaluator gives them.

`expressions.json` has the expressions and a device, `outcomes.json` what Kubernetes 1.36.3 and
1.37.2 return for it (`main.go`). An expression may fail here that has a value there, and it may be
refused, but the file says for which ones that holds.
"""

import json
from pathlib import Path

import pytest
from support.dra import a_slice, read_slice

from linkwise.cluster.cel.selection import selects
from linkwise.cluster.cel.syntax import SyntaxRefused, parse
from linkwise.cluster.cel.values import Failure

HERE = Path(__file__).parent
CORPUS = json.loads((HERE / "expressions.json").read_text(encoding="utf-8"))
OUTCOMES = json.loads((HERE / "outcomes.json").read_text(encoding="utf-8"))
CASES = [text for texts in CORPUS["expressions"].values() for text in texts]
[DEVICE] = read_slice(a_slice(CORPUS["device"])).devices


def outcome(text):
    match selects((text,), DEVICE.facts):
        case Failure():
            return "error"
        case selected:
            return str(selected).lower()


@pytest.mark.parametrize("text", CASES, ids=CASES)
def test_a_value_is_that_of_kubernetes(text):
    if text in CORPUS["refused"]:
        assert isinstance(parse(text), SyntaxRefused)
    elif text in CORPUS["stricter"]:
        assert OUTCOMES[text] != outcome(text) == "error"
    else:
        assert OUTCOMES[text].replace("invalid", "error") == outcome(text)


def test_every_documented_example_is_evaluated():
    assert not {*CORPUS["expressions"]["documented"]} & {*CORPUS["refused"], *CORPUS["stricter"]}
