import json

import pytest
from support.documents import PROFILE

RISKY = '[{"name": "everything", "effect": {"labels": {"a": "b"}}}]'


@pytest.fixture
def lint(linkwise, write):
    def lint_text(text, *arguments):
        write("f", text)
        code, out, err = linkwise("policy", "lint", "f", *arguments, "-o", "json")
        assert err == ""
        return code, json.loads(out)

    return lint_text


def test_clean_profile_shows_its_settings(lint):
    code, answer = lint(PROFILE)

    assert (code, answer["findings"]) == (0, [])
    (change,) = answer["changes"]
    assert change["source"] == "f:6"
    assert change["name"] == "gpu-hpn-driver"
    assert change["sets"] == {"metadata.labels[alibabacloud.com/gpu-driver-version]": "1.5.0"}


def test_a_risky_selector_is_a_warning_with_its_line(lint):
    code, answer = lint(f"\n{RISKY}")

    assert code == 0
    finding = answer["findings"][0]
    assert finding.keys() == {"code", "severity", "source", "field", "message", "fix"}
    assert (finding["code"], finding["severity"]) == ("LW503", "warning")
    assert finding["source"] == "f:2"
    assert lint(RISKY, "--strict")[0] == 3


@pytest.mark.parametrize(
    ("text", "source"),
    [
        pytest.param("kind: Policy\ncapasity: warn\n", "f:2", id="an unknown key"),
        pytest.param('[\n{"nam": "x"}]', "f:2", id="an unknown key of a selector"),
        pytest.param("[\n{]", "f:2", id="broken JSON"),
        pytest.param("a: [\n", "f:2", id="broken YAML"),
        pytest.param("apiVersion: v1\nkind: Pod\n", "f:2", id="no policy"),
        pytest.param("machines: [{nodeLabels: {a: b}, machine: t4x4, x: 1}]", "f:1", id="a rule"),
    ],
)
def test_a_mistake_fails_the_check_with_its_line(lint, text, source):
    code, answer = lint(text, "--strict")

    assert code == 1
    assert answer["findings"][0]["source"] == source
    assert answer["findings"][0]["severity"] == "error"
    assert answer["changes"] == []


def test_unknown_machine_name_is_an_error(lint):
    _, answer = lint("machines: [{nodeLabels: {a: b}, machine: t4x5}]")

    assert "t4x5" in answer["findings"][0]["message"]


def test_table_shows_problems_and_settings(linkwise, write):
    write("f", PROFILE)
    write("g", "capasity: warn\n")
    write("h", RISKY)

    assert linkwise("policy", "lint", "f").out == (
        "decides f:6 gpu-hpn-driver when the pod meets alibabacloud.com/compute-class=gpu-hpn\n"
        '    metadata.labels[alibabacloud.com/gpu-driver-version] = "1.5.0"\n'
    )
    assert linkwise("policy", "lint", "g").out == (
        "error LW502 g:1 capasity\n  Unknown key 'capasity'.\n  fix: Write capacity.\n"
    )
    assert linkwise("policy", "lint", "h").out.startswith("warning LW503 h:1 ")


def test_table_shows_a_key_once_and_cuts_long_values(linkwise):
    machines = [f"{{nodeLabels: {{a: b{i}}}, machine: t4x4}}" for i in range(9)]
    text = f"strict: false\nmachines: [{', '.join(machines)}]\n"

    strict, mapped = linkwise("policy", "lint", "-", stdin=text).out.splitlines()

    assert strict == "decides <stdin>:1 strict = false"
    assert mapped.startswith('decides <stdin>:2 machines = [{"nodeLabels": {"a": "b0"}')
    assert mapped.endswith("…")


def test_an_empty_policy_decides_nothing(linkwise):
    code, out, _ = linkwise("policy", "lint", "-", stdin="# nothing yet\n")

    assert (code, out) == (0, "<stdin>: nothing to complain about, and nothing is decided.\n")


def test_a_file_that_cannot_be_read_is_no_finding(linkwise):
    code, out, err = linkwise("policy", "lint", "missing.yaml", "-o", "json")

    assert (code, out) == (2, "")
    assert err.startswith("linkwise: missing.yaml: no such file or directory.")
