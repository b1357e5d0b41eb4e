import json
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from linkwise.views.render.finding_titles import TITLES

DENIED = (
    "apiVersion: v1\nkind: Pod\nmetadata: {name: bad}\n"
    "spec: {containers: [{name: c, resources: {limits: {aliyun.com/gpu: 0.5}}}]}\n"
)
WARNED = (
    "apiVersion: v1\nkind: Pod\nmetadata: {name: warned}\n"
    "spec: {containers: [{name: c, env: [{name: NVIDIA_VISIBLE_DEVICES, value: all}],"
    " resources: {limits: {aliyun.com/gpu: 1}}}]}\n"
)
PLAIN = "apiVersion: v1\nkind: Pod\nmetadata: {name: plain}\nspec: {containers: []}\n"
STRANGE = "apiVersion: example.org/v1\nkind: Trainer\nmetadata: {name: ray}\n"
ALL = "---\n".join([DENIED, WARNED, PLAIN, STRANGE])


@pytest.fixture
def check(linkwise, write):
    def call(output, text=ALL, name="jobs.yaml"):
        write(name, text)
        return linkwise("check", name, "-o", output)

    return call


def test_junit_has_a_case_for_each_template_and_each_object_that_was_not_judged(check):
    ran = check("junit")

    assert ran.code == 1
    (suite,) = ET.fromstring(ran.out)  # noqa: S314 - our own text
    assert (suite.tag, suite.attrib) == (
        "testsuite",
        {"name": "linkwise check", "tests": "4", "failures": "1", "errors": "1", "skipped": "1"},
    )
    assert [(case.get("classname"), case.get("name"), case.get("line")) for case in suite] == [
        ("Pod", "default/bad", "1"),
        ("Pod", "default/warned", "6"),
        ("Pod", "default/plain", "11"),
        ("Trainer", "ray", "16"),
    ]
    bad, warned, plain, strange = suite
    assert bad.find("failure").get("message") == "denied: LW108"
    assert "error LW108 jobs.yaml:4 spec.containers[0]" in bad.find("failure").text
    assert "Fix: Write 1" in bad.find("failure").text
    assert warned.find("failure") is None
    assert warned.find("system-out").text.startswith("warning LW113 jobs.yaml:9")
    assert plain.find("skipped") is not None
    assert strange.find("error").get("message") == "was not looked at"


@pytest.mark.parametrize("character", ["\\0", "\\a", "\\e", "\\uFFFE", '<&\\">', "]]>", "é\\n"])
def test_junit_is_xml_whatever_stands_in_a_manifest(check, character):
    ran = check("junit", DENIED.replace("name: bad", f'name: "{character}"'))

    assert ET.fromstring(ran.out) is not None  # noqa: S314 - our own text


def test_sarif_has_a_result_for_each_finding_at_its_line(check):
    ran = check("sarif")

    document = json.loads(ran.out)
    assert (ran.code, document["version"]) == (1, "2.1.0")
    (run,) = document["runs"]
    assert run["tool"]["driver"]["name"] == "linkwise"
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    results = [
        (
            one["ruleId"],
            one["level"],
            one["locations"][0]["physicalLocation"]["artifactLocation"]["uri"],
            one["locations"][0]["physicalLocation"]["region"]["startLine"],
        )
        for one in run["results"]
    ]
    assert results == [("LW108", "error", "jobs.yaml", 4), ("LW113", "warning", "jobs.yaml", 9)]
    assert [rules[one["ruleIndex"]] for one in run["results"]] == rules == ["LW108", "LW113"]
    assert "Fix: Write 1" in run["results"][0]["message"]["text"]
    (invocation,) = run["invocations"]
    assert invocation["executionSuccessful"] is False
    (notification,) = invocation["toolExecutionNotifications"]
    assert notification["message"]["text"].startswith("jobs.yaml:16: Trainer (example.org/v1) was ")


def test_rules_of_sarif_have_the_titles_of_the_documented_findings(check):
    page = (Path(__file__).parents[4] / "docs/findings.md").read_text(encoding="utf-8")
    titles = dict(re.findall(r"^### (LW\d+)\n\n\*\*(.+?)\.?\*\*", page, re.MULTILINE))
    rules = json.loads(check("sarif").out)["runs"][0]["tool"]["driver"]["rules"]

    assert titles == TITLES
    for rule in rules:
        assert rule["shortDescription"] == {"text": f"{titles[rule['id']]}."}
        assert titles[rule["id"]] in rule["fullDescription"]["text"]
        assert rule["id"] in rule["help"]["text"]


def test_sarif_names_a_file_by_an_address_that_can_be_read_back(check):
    document = json.loads(check("sarif", DENIED, "my job:%.yaml").out)

    (result,) = document["runs"][0]["results"]
    (location,) = result["locations"]
    uri = location["physicalLocation"]["artifactLocation"]["uri"]
    assert uri == "my%20job%3A%25.yaml"


def test_github_shows_each_finding_beside_its_line(check):
    ran = check("github")

    denied, warned, strange = ran.out.splitlines()
    assert denied.startswith(
        "::error file=jobs.yaml,line=4,title=LW108::Pod default/bad: 0.5 is not allowed: "
    )
    assert warned.startswith("::warning file=jobs.yaml,line=9,title=LW113::Pod default/warned: ")
    assert strange == (
        "::error file=jobs.yaml,line=16,title=not judged::"
        "jobs.yaml:16: Trainer (example.org/v1) was not looked at."
    )


def test_nothing_in_a_manifest_is_a_command_for_github(check):
    text = DENIED.replace("name: bad", 'name: "a\\n::error::50%"')

    ran = check("github", text, "a:b,c.yaml")

    (line,) = ran.out.splitlines()
    assert line.startswith("::error file=a%3Ab%2Cc.yaml,line=4,title=LW108::")
    assert "%0A::error::50%25" in line


@pytest.mark.parametrize("output", ["junit", "sarif", "github"])
@pytest.mark.parametrize(
    ("text", "code"),
    [(PLAIN, 0), (WARNED, 0), (STRANGE + "---\n" + PLAIN, 3), (DENIED, 1), ("a: [", 2)],
    ids=["clean", "warned", "not judged", "denied", "unreadable"],
)
def test_the_exit_code_is_that_of_every_format(check, output, text, code):
    ran = check(output, text)

    assert ran.code == code
    assert (ran.out == "") is (code == 2 or (output == "github" and code == 0 and text == PLAIN))
