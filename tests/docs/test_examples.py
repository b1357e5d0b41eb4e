"""Each manifest of docs/examples comes out as the table beside it says."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from support.documents import COMPUTE_SHARE, GPUSHARE, MODEL_AND_DRIVER

from linkwise.cli.__main__ import run

FOLDER = Path(__file__).parents[2] / "docs/examples"
CLUSTER = ("--cluster", str(FOLDER / "cluster.yaml"))
PAGE = (FOLDER / "README.md").read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Row:
    file: str
    options: list[str]
    check: str
    simulate: str

    @property
    def arguments(self):
        return [str(FOLDER / self.file), *self.options, *CLUSTER]


def rows():
    for line in re.findall(r"^\| (\[.*) \|$", PAGE, re.MULTILINE):
        command, _, check, simulate = line.split(" | ")
        file, *others = re.findall(r"\]\(([^)]+)\)", command)
        flags = re.findall(r"`(--\w+)`", command)
        options = [
            word
            for flag, name in zip(flags, others, strict=True)
            for word in (flag, str(FOLDER / name))
        ]
        yield Row(file, options, check, simulate)


ROWS = [pytest.param(row, id=row.file) for row in rows()]


@pytest.fixture
def linkwise(capsys):
    def call(*arguments):
        code = run([*arguments, "-o", "json"])
        out, err = capsys.readouterr()
        assert err == ""
        return code, json.loads(out)

    return call


def placed(pod):
    """Return where a pod is, as the table writes it."""
    gpus = pod["gpus"]
    return (
        f"`{pod['node']}` by count"
        if gpus is None
        else f"`{pod['node']} {' '.join(map(str, gpus))}`"
    )


def test_there_are_ten_and_each_file_is_in_the_table():
    named = set(re.findall(r"\]\(([\w-]+\.yaml)\)", PAGE))

    assert len(ROWS) == 10
    assert named == {path.name for path in FOLDER.glob("*.yaml")}


@pytest.mark.parametrize("row", ROWS)
def test_check_answers_as_the_table_says(linkwise, row):
    code, report = linkwise("check", *row.arguments)

    verdict = row.check.partition(",")[0]
    found = {finding["code"] for item in report["items"] for finding in item["findings"]}
    assert {item["verdict"] for item in report["items"]} == {verdict}
    assert found == set(re.findall(r"\[(LW\d+)\]", row.check))
    assert code == (verdict == "denied")


@pytest.mark.parametrize("row", ROWS)
def test_simulate_places_as_the_table_says(linkwise, row):
    code, answer = linkwise("simulate", *row.arguments)

    with_gpus = [pod for pod in answer["pods"] if pod["node"]]
    assert ", ".join(map(placed, with_gpus)) == row.simulate.replace("denied", "")
    assert code == (row.simulate == "denied")


def test_example_with_model_placeholder_has_no_other_finding(linkwise, tmp_path):
    text = (FOLDER / "model-and-driver.yaml").read_text(encoding="utf-8")
    (tmp_path / "t4.yaml").write_text(text.replace("example-model", "T4"))

    code, answer = linkwise("simulate", str(tmp_path / "t4.yaml"), *CLUSTER)

    assert (code, answer["pods"][0]["node"]) == (0, "plugin")


@pytest.mark.parametrize(
    ("file", "text"),
    [
        pytest.param("compute-share-job.yaml", COMPUTE_SHARE, id="compute share"),
        pytest.param("gpushare-pod.yaml", GPUSHARE, id="gpushare"),
        pytest.param("model-and-driver.yaml", MODEL_AND_DRIVER, id="model and driver"),
    ],
)
def test_an_example_is_what_the_end_to_end_tests_create(file, text):
    assert yaml.safe_load((FOLDER / file).read_text(encoding="utf-8")) == yaml.safe_load(text)
