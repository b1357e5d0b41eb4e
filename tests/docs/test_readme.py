import re
import shlex
from itertools import combinations
from pathlib import Path

import pytest
from support.printed import blocks, commands

from linkwise.cli.__main__ import run
from linkwise.cluster import keys
from linkwise.policy.lint import lint
from linkwise.topology.catalogue import NAMES, entry
from linkwise.topology.machine import mask_of
from linkwise.topology.table import table_of

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "README.md").read_text(encoding="utf-8")
GUIDE = "docs/command.md"
LIVE = ("inspect", "explain", "snapshot", "dashboard")
COMMANDS = [
    shlex.split(line, comments=True)[1:] for line in commands(GUIDE) if line.startswith("linkwise ")
]
OFFLINE = [words for words in COMMANDS if words[0] not in LIVE]


@pytest.fixture
def here(monkeypatch, tmp_path):
    """A folder with the documents, into which a command may write."""
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("words", OFFLINE, ids=" ".join)
def test_a_command_that_needs_no_cluster_runs_as_it_stands(here, capsys, words):
    code = run(words)

    out, err = capsys.readouterr()
    named = words[words.index("--to") + 1] if "--to" in words else None
    assert (code, err) == (0, "")
    assert (here / named).stat().st_size if named else out


SHOWN = [block for page in ("README.md", GUIDE) for block in blocks(page) if block.startswith("$ ")]


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("shown", SHOWN, ids=["exact", "counted"])
def test_a_placement_that_is_shown_is_what_the_command_prints(capsys, shown):
    command, _, printed = shown.partition("\n")

    run(shlex.split(command)[2:])

    assert capsys.readouterr().out.startswith(printed)


def test_a_pytorch_job_gets_the_gpus_of_the_first_example_by_default(here, capsys):
    """No mark and no policy makes its pods a gang."""
    (here / "job.yaml").write_text(PYTORCH_JOB, encoding="utf-8")

    code = run(["simulate", "job.yaml", "--cluster", "docs/demo/exact.yaml"])

    assert (code, "55.2 GB/s modelled all-reduce bandwidth" in capsys.readouterr().out) == (0, True)


PYTORCH_JOB = f"""
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {{name: vgg16}}
spec:
  pytorchReplicaSpecs:
    Worker:
      replicas: 4
      template:
        spec:
          containers:
          - name: pytorch
            image: training:latest
            resources: {{limits: {{{keys.NVIDIA_GPU}: 1}}}}
"""


def test_the_workload_that_is_shown_is_the_one_that_is_placed():
    excerpt, *_ = blocks("README.md")
    text = (ROOT / "docs/demo/mpijob.yaml").read_text(encoding="utf-8")
    assert keys.NVIDIA_GPU in excerpt
    assert excerpt.strip() in text
    assert all("docs/demo/mpijob.yaml" in shown for shown in SHOWN)


def test_the_policy_that_is_installed_has_no_problem():
    (written,) = [
        text
        for text in commands("docs/operations/install.md")
        if text.startswith("cat > cluster-a/policy")
    ]
    _, *lines, _ = written.splitlines()
    assert lint("\n".join(lines), machines=NAMES).problems == ()


def test_links_lead_to_files_that_are_there():
    links = re.findall(r"\]\(([^)#:]+)[^)]*\)", PAGE)

    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_a_reader_sees_the_cluster_first_then_tries_and_installs():
    assert len(PAGE.splitlines()) <= 120
    headings = re.findall(r"^## (.*)$", PAGE, flags=re.MULTILINE)
    assert headings == [
        "For whom",
        "See your cluster first",
        "Try it",
        "Install it on a cluster",
        "Where to go",
    ]


def test_the_machines_on_which_no_set_is_better_are_those_of_the_catalogue():
    number = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    switched = [name for name in NAMES if entry(name).machine.switched]

    assert f"On the {number[len(switched)]} NVSwitch machines of the" in PAGE
    differ, equal = (
        set(re.findall(r"`([a-z0-9-]+)`", text))
        for text in re.findall(
            r"^\* \*\*(?:Links matter inside|On the)[^*]*.*\n.*", PAGE, re.MULTILINE
        )
    )
    assert differ == {name for name in NAMES if _sets_differ(name)}
    assert equal == {*NAMES} - differ - {*switched}


def _sets_differ(name):
    """Return whether some set of GPUs of a machine is faster than another one of its size."""
    machine = entry(name).machine
    table = table_of(machine)
    return any(
        len({table.bandwidth(mask_of(chosen)) for chosen in combinations(range(machine.n), size)})
        > 1
        for size in range(2, min(machine.n, 5))
    )


def test_the_pictures_are_small_images_that_one_command_draws():
    (placement,) = re.findall(r"!\[[^]]+\]\(([^)]+)\)", PAGE)
    (dashboard,) = re.findall(r"!\[[^]]+\]\(([^)]+)\)", (ROOT / GUIDE).read_text(encoding="utf-8"))

    for image in (ROOT / placement, ROOT / "docs" / dashboard):
        assert image.read_bytes().startswith(b"\x89PNG")
        assert image.stat().st_size < 400_000
    script = (ROOT / "docs/demo/picture").read_text(encoding="utf-8")
    run_by_demo = (ROOT / "docs/demo/run").read_text(encoding="utf-8")
    shown = "simulate docs/demo/gang.yaml --cluster docs/demo/cluster.yaml -o html --to "
    assert placement in script
    assert "docs/demo/dashboard_picture" in script
    drawn = (ROOT / "docs/demo/dashboard_picture").read_text(encoding="utf-8")
    assert f'with_name("{Path(dashboard).name}")' in drawn
    assert shown in script
    assert shown in run_by_demo
