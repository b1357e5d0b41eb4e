import re
from pathlib import Path

import pytest
import yaml
from support.exposed import exposed as exposed_metrics
from support.printed import CHANGING, LOOKING, inline, text_of

from agent.settings import Settings as AgentSettings
from certs.settings import Settings as CertsSettings
from dashboard.settings import Settings as DashboardSettings
from scorer.settings import Settings as ScorerSettings
from webhook.settings import Settings as WebhookSettings

ROOT = Path(__file__).parents[2]
PAGE = text_of("docs/operations.md") + text_of("docs/operations")
RULES = ROOT / "manifests/alerts/rules.yaml"
RECORDING = ROOT / "manifests/alerts/recording.yaml"
SETTINGS = {
    "webhook": WebhookSettings,
    "certs": CertsSettings,
    "scorer": ScorerSettings,
    "agent": AgentSettings,
    "dashboard": DashboardSettings,
}
COMPONENTS = ("linkwise/runtime", "webhook", "certs", "scorer", "agent", "dashboard")
RUN_ELSEWHERE = {
    "kubectl apply -k manifests/": "tests/e2e/test_printed.py installs from each folder",
    "kubectl get --raw /metrics": "tests/e2e/test_operations.py looks for these metrics",
    "linkwise certs status": "tests/linkwise/cli and tests/e2e/test_printed.py run it",
    "linkwise inspect": "tests/e2e/test_live_cli.py runs it",
    "linkwise explain gang": "tests/e2e/test_live_cli.py runs it",
    "linkwise check": "tests/linkwise/cli/test_check.py runs it",
}
"""Tests that run commands in sentences which need more than their words."""
BEGINNINGS = ("kubectl apply -k", "kubectl debug", "kubectl apply")
"""Names of commands, in sentences about them."""
NAME = r"\b(?:linkwise|process|python|apiserver)_[a-z_]+\b"
OF_THE_API_SERVER = {
    "apiserver_admission_webhook_admission_duration_seconds",
    "apiserver_admission_webhook_fail_open_count",
    "apiserver_admission_webhook_rejection_count",
    "apiserver_validating_admission_policy_check_total",
}
"""Looked for on a real one in the end-to-end tests."""


def rows(heading):
    """Return the first column of each row of a section's table, without backticks."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    assert section, heading
    return re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)


@pytest.fixture(scope="module")
def exposed(answered):
    """What each process exposes, by type, without the times at which metrics were made."""
    return [
        {name: kind for name, kind in types.items() if not name.endswith("_created")}
        for types in answered.values()
    ]


@pytest.fixture(scope="module")
def answered(tmp_path_factory):
    """All that the processes expose, by type."""
    processes = exposed_metrics(tmp_path_factory.mktemp("exposed"))
    return {
        process: {name: metric.type for name, metric in found.items()}
        for process, found in processes.items()
    }


def test_the_page_has_a_row_for_each_metric_that_a_process_exposes_and_for_no_other(exposed):
    ours = [name for one in exposed for name in one if name.startswith("linkwise_")]

    assert sorted(rows("Metrics")) == sorted(set(ours))


def test_a_metric_is_of_the_type_that_its_row_says(exposed):
    types = {name: kind for one in exposed for name, kind in one.items()}
    rows_of_types = re.findall(r"^\| `(linkwise_[a-z_]+)` \| (\w+) \|", PAGE, re.MULTILINE)

    assert {name: types[name] for name, _ in rows_of_types} == dict(rows_of_types)


def test_each_row_of_a_metric_says_which_processes_expose_it(answered):
    rows_by = re.findall(
        r"^\| `(linkwise_\w+)` \| \w+ \| [^|]*\| from ([^:]+):", PAGE, re.MULTILINE
    )
    owners = {
        name: set(answered)
        if of == "each process"
        else set(re.findall(r"webhook|certs|scorer|agent", of))
        for name, of in rows_by
    }

    assert owners.keys() == set(rows("Metrics"))
    assert owners == {name: {p for p in answered if name in answered[p]} for name in owners}


def test_each_metric_has_a_gauge_of_its_creation_time(answered):
    assert "a gauge `…_created`, without `_total`" in PAGE
    for types in answered.values():
        made = {name: kind for name, kind in types.items() if name.endswith("_created")}
        timed = {
            name for name, kind in types.items() if kind in {"counter", "histogram", "summary"}
        }
        assert set(made.values()) == {"gauge"}
        # One with labels has none of either before its first value.
        assert made.keys() <= {f"{name.removesuffix('_total')}_created" for name in timed}


@pytest.mark.parametrize("text", [PAGE, RULES.read_text()], ids=["page", "rules"])
def test_every_metric_that_is_named_anywhere_is_there(exposed, text):
    known = {name for one in exposed for name in one} | OF_THE_API_SERVER
    named = {re.sub(r"_bucket$", "", name) for name in re.findall(NAME, text)}

    assert named - known == set()


def test_every_alert_is_explained_and_every_explained_alert_is_there():
    (group,) = yaml.safe_load(RULES.read_text())["spec"]["groups"]

    assert rows("Alerts") == [rule["alert"] for rule in group["rules"]]


def test_every_recording_rule_is_explained_and_every_explained_one_is_there():
    (group,) = yaml.safe_load(RECORDING.read_text())["spec"]["groups"]

    assert rows("Recording rules") == [rule["record"] for rule in group["rules"]]


def test_the_summary_of_each_alert_is_its_meaning_on_the_page():
    (group,) = yaml.safe_load(RULES.read_text())["spec"]["groups"]
    summaries = {rule["alert"]: rule["annotations"]["summary"] for rule in group["rules"]}
    meanings = re.findall(r"^\| `(Linkwise\w+)` \| (.*?) \|", PAGE, re.MULTILINE)

    assert summaries == {
        alert: f"{meaning[0].upper()}{meaning[1:]}.".replace("`", "") for alert, meaning in meanings
    }


def test_the_page_names_each_setting_and_no_other_with_its_default_and_its_processes():
    owners, defaults = {}, {}
    for process, settings in SETTINGS.items():
        for name, declaration in settings.declarations():
            owners.setdefault(name, []).append(process)
            defaults.setdefault(name, set()).add(declaration.shown)

    rows = re.findall(r"^\| `(LINKWISE_\w+)` \| ([^|]+) \| ([\w, ]+) \|", PAGE, re.MULTILINE)

    assert {name: {default.strip("`")} for name, default, _ in rows} == defaults
    readers = {name: list(SETTINGS) if of == "all" else of.split(", ") for name, _, of in rows}
    assert readers == owners
    assert set(re.findall(r"LINKWISE_\w+", PAGE)) == set(owners)


def test_every_message_that_is_logged_is_explained_and_every_explained_one_is_logged():
    sources = [path for name in COMPONENTS for path in (ROOT / name).rglob("*.py")]
    calls = r'_?log\.(?:info|warning|error|exception)\(\s*"([^"]+)"'
    logged = {found for path in sources for found in re.findall(calls, path.read_text())}
    table = PAGE.partition("| other messages |")[2].partition("\n\n")[0]
    first = re.findall(r"^\| (`[^|]+) \|", table, re.MULTILINE)
    explained = {message for cell in first for message in re.findall("`([^`]+)`", cell)}

    assert explained == logged


def test_tests_that_the_page_names_are_there():
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", PAGE)

    assert named
    assert len(named) == PAGE.count(".py::")
    files = {path: (ROOT / "tests" / path).read_text(encoding="utf-8") for path, _ in named}
    assert [one for one in named if f"def {one[1]}(" not in files[one[0]]] == []


@pytest.mark.parametrize("heading", ["| failure |", "| fault |"])
def test_each_failure_names_a_test(heading):
    table = PAGE.partition(f"\n{heading}")[2].partition("\n\n")[0].splitlines()[2:]

    assert table
    assert [row for row in table if "::test_" not in row.rpartition(" | ")[2]] == []


@pytest.mark.parametrize("command", inline("docs/operations"))
def test_command_in_a_sentence_is_run_or_says_that_it_is_not(command):
    after = PAGE.partition(f"`{command}`")[2] or PAGE.partition(command.replace("|", "\\|"))[2]
    says = after.lstrip("`").lstrip().startswith("*(not tried)*")
    # A test runs these with names of its own.
    named = command.replace("<pod>", "pod")
    is_run = CHANGING.fullmatch(named) or LOOKING.fullmatch(named)

    assert says or is_run or command in BEGINNINGS or command.startswith(tuple(RUN_ELSEWHERE))


def test_files_that_the_page_names_are_there():
    named = re.findall(r"\bmanifests/[a-z./-]+[a-z]", PAGE)

    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []
