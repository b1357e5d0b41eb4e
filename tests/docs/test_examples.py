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
FOLDERS = (FOLDER, FOLDER / "alibaba")
QUEUE = "kueue.x-k8s.io/queue-name"


@dataclass(frozen=True, slots=True)
class Row:
    folder: Path
    file: str
    options: list[str]
    check: str
    simulate: str

    def arguments(self, path=None):
        cluster = ("--cluster", str(self.folder / "cluster.yaml"))
        return [str(path or self.folder / self.file), *self.options, *cluster]


def page(folder):
    return (folder / "README.md").read_text(encoding="utf-8")


def rows(folder):
    for line in re.findall(r"^\| (\[.*) \|$", page(folder), re.MULTILINE):
        command, _, check, simulate = line.split(" | ")
        file, *others = re.findall(r"\]\(([^)]+)\)", command)
        flags = re.findall(r"`(--\w+)`", command)
        options = [
            word
            for flag, name in zip(flags, others, strict=True)
            for word in (flag, str(folder / name))
        ]
        yield Row(folder, file, options, check, simulate)


ROWS = [pytest.param(row, id=row.file) for folder in FOLDERS for row in rows(folder)]
QUEUED = [pytest.param(row, id=row.file) for row in rows(FOLDER)]


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


@pytest.mark.parametrize("folder", FOLDERS, ids=["common", "alibaba"])
def test_each_file_is_on_the_page_of_its_folder(folder):
    named = set(re.findall(r"\]\(([\w-]+\.yaml)\)", page(folder)))

    assert named == {path.name for path in folder.glob("*.yaml")}


@pytest.mark.parametrize("row", ROWS)
def test_check_answers_as_the_table_says(linkwise, row):
    code, report = linkwise("check", *row.arguments())

    verdict = row.check.partition(",")[0]
    found = {finding["code"] for item in report["items"] for finding in item["findings"]}
    assert {item["verdict"] for item in report["items"]} - {"skipped"} == {verdict}
    assert found == set(re.findall(r"\[(LW\d+)\]", row.check))
    assert code == (verdict == "denied")


@pytest.mark.parametrize("row", ROWS)
def test_simulate_places_as_the_table_says(linkwise, row):
    code, answer = linkwise("simulate", *row.arguments())

    with_gpus = [pod for pod in answer["pods"] if pod["node"]]
    assert ", ".join(map(placed, with_gpus)) == row.simulate.replace("denied", "")
    assert code == (row.simulate == "denied")


@pytest.mark.parametrize("row", QUEUED)
def test_the_label_of_a_queue_changes_no_result(linkwise, tmp_path, row):
    objects = list(yaml.safe_load_all((row.folder / row.file).read_text(encoding="utf-8")))
    objects[-1]["metadata"].setdefault("labels", {})[QUEUE] = "gpus"
    (tmp_path / row.file).write_text(yaml.safe_dump_all(objects), encoding="utf-8")

    _, queued = linkwise("simulate", *row.arguments(tmp_path / row.file))
    _, answer = linkwise("simulate", *row.arguments())

    assert queued == answer


@pytest.mark.parametrize(
    ("file", "text"),
    [
        pytest.param("compute-share-job.yaml", COMPUTE_SHARE, id="compute share"),
        pytest.param("gpushare-pod.yaml", GPUSHARE, id="gpushare"),
        pytest.param("model-and-driver.yaml", MODEL_AND_DRIVER, id="model and driver"),
    ],
)
def test_an_example_is_what_the_end_to_end_tests_create(file, text):
    assert yaml.safe_load(
        (FOLDER / "alibaba" / file).read_text(encoding="utf-8")
    ) == yaml.safe_load(text.replace("example-model", "T4"))
