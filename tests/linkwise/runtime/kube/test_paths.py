"""No name that others choose changes what a path of the API names."""

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkwise.runtime.kube.paths import InvalidPath, api_path, path_below

ROOT = Path(__file__).parents[4]
PROGRAMS = ("linkwise", "webhook", "scorer", "certs", "agent", "dashboard")
HOSTILE = {
    "a path": "../../../../api/v1/nodes?watch=true&x=",
    "a segment": "a/b",
    "the parent": "..",
    "itself": ".",
    "nothing": "",
    "a query": "a?watch=true",
    "a fragment": "a#b",
    "quoted": "a%2Fb",
    "a backslash": "a\\b",
    "a control character": "a\x00",
    "a line": "a\n",
    "a space": "a b",
    "another alphabet": "ä",
    "too long": "a" * 254,
}


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_name_that_no_object_has_is_refused(name):
    with pytest.raises(InvalidPath):
        api_path("v1", "namespaces", name, "pods")
    with pytest.raises(InvalidPath):
        path_below("/api/v1/nodes", name)


@pytest.mark.parametrize("version", ["", "apps/", "/v1", "a/b/c", "../v1", "apps/..", "v1?x"])
def test_a_version_that_no_api_has_is_refused(version):
    with pytest.raises(InvalidPath):
        api_path(version, "pods")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (api_path("v1", "nodes", "a.b"), "/api/v1/nodes/a.b"),
        (api_path("apps/v1", "statefulsets"), "/apis/apps/v1/statefulsets"),
        (path_below("/api/v1/nodes", "a", "status"), "/api/v1/nodes/a/status"),
        (path_below("/api/v1", "system:node:a"), "/api/v1/system:node:a"),
    ],
)
def test_segments_are_joined(path, expected):
    assert path == expected


@given(st.lists(st.text(max_size=20), max_size=4))
def test_a_path_has_as_many_segments_as_were_given_and_no_query(segments):
    try:
        path = api_path("v1", *segments)
    except InvalidPath:
        return
    assert path.split("/") == ["", "api", "v1", *segments]
    assert not set(path) & set("?#%\\\r\n ")


@pytest.mark.parametrize("program", PROGRAMS)
def test_all_paths_are_built_here(program):
    """A path in an f-string would have any name of others in it."""
    found = [
        f"{file.relative_to(ROOT)}:{node.lineno}"
        for file in sorted((ROOT / program).rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.JoinedStr) and _is_path(node)
    ]
    assert found == []


def _is_path(text):
    """Return whether an f-string begins like a path, or continues one."""
    first, *rest = text.values
    if isinstance(first, ast.Constant):
        return str(first.value).startswith(("/api/", "/apis/"))
    follows = rest and isinstance(rest[0], ast.Constant) and str(rest[0].value).startswith("/")
    name = ast.unparse(first.value).lower().split("(")[0].rpartition(".")[2].strip("_")
    is_path = name.endswith(BASES) or ast.unparse(first.value).endswith(".path")
    return bool(follows) and is_path


BASES = ("collection", "api", "classes", "claims", "configurations", "core", "_of")
"""Ends of names of paths."""
