import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from linkwise.cluster import (
    accelerator_keys,
    container_variables,
    keys,
    sharing_keys,
    volume_keys,
)
from linkwise.workloads import operator_keys

ROOT = Path(__file__).parents[1]
PACKAGES = ("linkwise", "webhook", "scorer", "certs", "agent", "dashboard")
HOMES = {
    "linkwise/cluster/keys.py": keys,
    "linkwise/cluster/container_variables.py": container_variables,
    "linkwise/cluster/accelerator_keys.py": accelerator_keys,
    "linkwise/cluster/sharing_keys.py": sharing_keys,
    "linkwise/cluster/volume_keys.py": volume_keys,
    "linkwise/workloads/operator_keys.py": operator_keys,
}

WORDS = frozenset(
    value
    for home in HOMES.values()
    for name, value in vars(home).items()
    if name.isupper() and isinstance(value, str)
)
PATHS = frozenset(word for word in WORDS if word.startswith("/"))
DOMAINS = frozenset(word.partition("/")[0] + "/" for word in WORDS - PATHS if "/" in word)
"""No text has one of these but for a key, known or forgotten."""
TELLING = PATHS | {word for word in WORDS if word.isupper() or word.count(".") > 1}
"""These mean nothing else either, wherever they stand in a text."""
PLAIN = frozenset(word for word in WORDS if "/" not in word) - TELLING
"""These may be parts of other words, so that only a text that is one of them counts."""

ALLOWED = {
    ("linkwise/policy/document.py", "linkwise.dev/"): "a Literal type takes no name",
    ("linkwise/policy/lint_policy.py", "devices"): "a key of the file of NVIDIA's device plugin",
    ("linkwise/manifest/claim_form.py", "devices"): "a field of ResourceClaims",
    ("linkwise/policy/plugin_flags.py", "gpus"): "a key of the file of NVIDIA's device plugin",
    ("linkwise/cluster/allocations/device_claim.py", "devices"): "a field of ResourceClaims",
    ("linkwise/cluster/allocations/device_claim.py", "selectors"): "a field of ResourceClaims",
    ("linkwise/cluster/allocations/user_claim.py", "devices"): "a field of ResourceClaims",
    ("linkwise/cluster/requests/user_claims/claim_spec.py", "devices"): "a field of ResourceClaims",
    (
        "linkwise/cluster/requests/user_claims/device_class.py",
        "devices",
    ): "a field of ResourceClaims",
    ("linkwise/cluster/requests/user_claims/pod_claims.py", "selectors"): "a key of the annotation",
    ("linkwise/views/render/check_text.py", "devices"): "a field of ResourceClaims",
    (
        "linkwise/cluster/mode.py",
        "cgpu",
    ): "the mode of a node, which is that label's name by chance",
    (
        "linkwise/cluster/allocations/record.py",
        "cgpu",
    ): "an isolation, which is that label's name by chance",
    ("certs/settings.py", "linkwise"): "the name of our registrations",
    ("linkwise/views/analysis/certificates.py", "linkwise"): "the name of our registrations",
    ("certs/store.py", "kubernetes.io/"): "a type of Secret",
    ("linkwise/cli/__main__.py", "linkwise"): "the command's own name",
    ("linkwise/views/render/check_ci.py", "linkwise"): "the command's own name",
    ("linkwise/cli/replay.py", "linkwise"): "the command's own name",
    ("linkwise/views/render/replay_json.py", "linkwise"): "the command's own name",
    ("linkwise/views/analysis/replay_store.py", "linkwise"): "the name of our distribution",
    ("linkwise/cli/root.py", "linkwise"): "the command's own name",
    ("linkwise/cli/cluster_commands.py", "linkwise"): "the command's own name",
    ("linkwise/cli/manifest_commands.py", "linkwise"): "the command's own name",
    ("linkwise/cli/inspect.py", "linkwise"): "the command's own name",
    (
        "linkwise/cli/cluster_commands.py",
        "gpushare",
    ): "the name of a table, which is that label's name by chance",
    ("linkwise/admission/dry_run/pod_report.py", "gpus"): "a key of the command's answers",
    ("linkwise/planning/gang/crd_plan.py", "gpus"): "a field of Gangs",
    (
        "linkwise/cli/inspect.py",
        "gpushare",
    ): "the name of a table, which is that label's name by chance",
    ("linkwise/replay/policies/registry.py", "linkwise"): "the name of our policy",
    ("linkwise/replay/traces/history.py", "gpus"): "a column of a trace",
    ("linkwise/replay/traces/philly.py", "gpus"): "a field of a trace",
    ("linkwise/runtime/http/handler.py", "linkwise"): "the name of the server in its answers",
    ("linkwise/runtime/kube/client.py", "kubernetes.io/"): "a folder that the kubelet mounts",
    ("scorer/withdraw/withdrawal.py", "linkwise"): "the name of our registrations",
}
"""Why a word stands in a file all the same."""


def texts(source: str) -> Iterator[str]:
    """Yield the string literals of a module, without those that only document."""
    tree = ast.parse(source)
    documenting = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in documenting:
                yield text


def spelled_out(source: str) -> set[str]:
    """Return the names on the wire that a module writes as literals."""
    return {
        word
        for text in texts(source)
        for word in (*(PLAIN & {text}), *(word for word in DOMAINS | TELLING if word in text))
    }


def found() -> set[tuple[str, str]]:
    modules = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return {
        (path.relative_to(ROOT).as_posix(), word)
        for path in modules
        for word in spelled_out(path.read_text(encoding="utf-8"))
    }


def excuse(where: str, word: str) -> str | None:
    return ALLOWED.get((where, word))


def test_names_on_the_wire_are_spelled_out_in_one_module_only():
    unexcused = {hit for hit in found() if hit[0] not in HOMES and not excuse(*hit)}

    assert unexcused == set()


def test_every_exception_is_needed():
    assert found() >= ALLOWED.keys()


@pytest.mark.parametrize(
    ("source", "words"),
    [
        pytest.param('KEY = "aliyun.com/gpu-mem"', {"aliyun.com/"}, id="a key"),
        pytest.param('KEY = "nvidia.com/forgotten"', {"nvidia.com/"}, id="a key that keys lacks"),
        pytest.param(
            'z = f"set {x} by aliyun.com/{y}"', {"aliyun.com/"}, id="a part of an f-string"
        ),
        pytest.param('KEY = "gpushare"', {"gpushare"}, id="a plain word"),
        pytest.param('TEXT = "as gpushare does"', set(), id="a plain word in a sentence"),
        pytest.param('"""Of aliyun.com/gpu-mem."""', set(), id="a docstring"),
    ],
)
def test_literals_are_distinguished_from_documentation(source, words):
    assert spelled_out(source) == words
