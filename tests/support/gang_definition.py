"""The definition of Gangs as the API server applies it: its schema, and its rules for changes."""

import re
from functools import cache
from pathlib import Path

import jsonschema
import pytest
import yaml

_FILE = Path(__file__).parents[2] / "manifests/base/gang-crd.yaml"

REFUSED = (
    pytest.param("/spec/gang", "other", "another Gang", id="name"),
    pytest.param("/spec/owner", "other", "stays with its job", id="owner"),
    pytest.param("/spec/size", 0, "greater than or equal to 1", id="size"),
    pytest.param("/spec/size", 4097, "less than or equal to 4096", id="too many"),
    pytest.param("/spec/link", "fast", "one-node", id="link"),
    pytest.param("/spec/plan/members/1/pod", "bert-worker-0", "Duplicate", id="pod, twice"),
    pytest.param("/spec/plan/members/1/gpus", [16], "less than or equal to 15", id="GPU"),
    pytest.param("/spec/plan/members", [], "at least 1", id="no members"),
    pytest.param(
        "/spec/plan/members/-",
        {"pod": "bert-worker-4", "uid": "u4", "node": "gpu-0", "gpus": [4]},
        "another id",
        id="one more in the same plan",
    ),
)
"""Changes of a Gang with a plan of `bert-worker-0` to `-3` that the API server refuses: path, value
and a part of its message."""
TAKEN = (
    pytest.param("/spec/plan/members/1/gpus", [7], id="other GPUs of a member"),
    pytest.param("/spec/plan/bandwidth", 4.0, id="another bandwidth"),
    pytest.param(
        "/spec/plan/members",
        [{"pod": "bert-worker-3", "uid": "u3", "node": "gpu-0", "gpus": [3]}],
        id="fewer members",
    ),
    pytest.param("/spec/plan/id", "1-2", id="another plan"),
    pytest.param("/spec/size", 4096, id="as many as are placed"),
    pytest.param("/spec/link", "nvlink", id="link"),
)
"""Changes of the same Gang that it takes: path and value. The scorer makes no others."""


class _Object(dict):
    """An object whose fields a rule reads as attributes."""

    __getattr__ = dict.__getitem__


def refusal(new, old=None):
    """Return why the API server refuses a Gang; None: it takes it.

    Args:
        new: The Gang as it is to be stored.
        old: The stored one; None: it is created.
    """
    schema = _schema()
    validator = jsonschema.Draft202012Validator(schema)
    problems = [error.message for error in validator.iter_errors(new)]
    problems = problems or list(_problems(schema, new, old))
    return f"Gang is invalid: {problems[0]}" if problems else None


@cache
def _schema():
    (version,) = yaml.safe_load(_FILE.read_text())["spec"]["versions"]
    return version["schema"]["openAPIV3Schema"]


def _problems(schema, new, old):
    """Yield the messages of rules that do not hold, and the keys that a list has twice."""
    for rule in schema.get("x-kubernetes-validations", ()) if old is not None else ():
        if not _holds(rule["rule"], new, old):
            yield rule["message"]
    for name, inner in schema.get("properties", {}).items():
        if name in new:
            yield from _problems(inner, new[name], (old or {}).get(name))
    for key in schema.get("x-kubernetes-list-map-keys", ()):
        if len({item[key] for item in new}) < len(new):
            yield f"Duplicate value of {key}"


def _holds(rule, new, old):
    text = re.sub(r"has\((\w+)\.(\w+)\)", r"('\2' in \1)", rule)
    text = re.sub(r"([\w.]+)\.size\(\)", r"len(\1)", text)
    text = re.sub(r"!(?!=)", " not ", text.replace("&&", " and ").replace("||", " or "))
    return eval(text, {"self": _read(new), "oldSelf": _read(old)})  # noqa: S307 - of our manifest.


def _read(value):
    return _Object(value) if isinstance(value, dict) else value
