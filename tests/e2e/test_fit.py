"""Dry runs give the placement of the leading scorer, with real tokens."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from controlplane.dryruns import assignments, manifest, person
from controlplane.pods import a_pod
from controlplane.process import answered_in_time, wait_until
from msgspec import convert

from linkwise.cluster import keys
from linkwise.cluster.allocations.record import parse_record
from linkwise.cluster.objects.pod import Pod

LINKWISE = Path(sys.executable).with_name("linkwise")
SHARES = {"name": "share-0", "machine": "t4x4", "mode": "core_mem", "gpuMemory": 15}
SHARE = {keys.GPU_MEM: 10, keys.GPU_CORE: 30}


@pytest.fixture
def ann(webhook, namespace):
    return person(webhook, namespace)


def gang(count, gpus=1):
    mark = {keys.GANG: "bert", keys.GANG_SIZE: str(count)}
    limits = {keys.GPU_WHOLE: gpus}
    return [a_pod(f"bert-{i}", limits, annotations=mark) for i in range(count)]


def created(plane, namespace, *pods):
    """Create pods; return the node and GPUs of each, by its record."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    for pod in pods:
        plane.api.create(path, pod)

    def placed():
        found = (convert(pod, Pod) for pod in plane.api.get(path)["items"])
        records = {pod.metadata.name: parse_record(pod.annotations) for pod in found}
        return {
            name: (record.node, list(record.gpus.indices))
            for name, record in records.items()
            if record
        }

    wait_until(lambda: len(placed()) == len(pods), "they have their GPUs", 60)
    return placed()


# The first, while no scorer has run here.
def test_without_a_leader_admission_is_answered_with_a_note(ann):
    answer = ann.ask(*gang(2))

    assert [(pod["verdict"], pod["placement"]) for pod in answer["pods"]] == [("allowed", None)] * 2
    assert answer["notes"] == ["placement is not known: no scorer has led so far."]


@pytest.mark.usefixtures("placing")
def test_gang_is_placed_as_in_the_dry_run(plane, machines, namespace, ann):
    machines(2)
    wait_until(lambda: ann.fits(*gang(16)), "the nodes are known")

    wait_until(lambda: ann.ask(*gang(4))["warnings"] == [], "the webhook knows them, too")
    placements = ann.placements(*gang(4))
    assert plane.api.get(f"/api/v1/namespaces/{namespace}/pods")["items"] == []

    assert created(plane, namespace, *gang(4)) == assignments(placements)
    for one in placements:
        assert (one["gang"], one["bandwidth"], one["best_possible"]) == ("bert", 55.2, 55.2)
        (node,) = one["nodes"]
        assert (node["free_before"], node["free_after"], node["gpus"]) == (8, 4, 8)


@pytest.mark.usefixtures("placing")
def test_a_gang_that_does_not_fit_gets_a_reason_with_the_number_of_nodes(machines, ann):
    machines(2)
    wait_until(lambda: ann.fits(*gang(16)), "the nodes are known")

    placements = ann.placements(*gang(5, gpus=4))

    assert not any(one["fits"] for one in placements)
    assert placements[0]["reason"].startswith(
        "needs 20 GPUs as 5 × 4 GPUs; 4 of 5 workers fit now, on 2 of "
    )


@pytest.mark.usefixtures("placing")
def test_shares_are_placed_as_in_the_dry_run_with_the_same_memory_left(
    plane, nodes, namespace, ann
):
    nodes(SHARES)
    shares = [a_pod(f"share-{i}", SHARE) for i in range(2)]
    wait_until(lambda: ann.fits(*shares), "the node is known")

    placements = ann.placements(*shares)
    assert created(plane, namespace, *shares) == assignments(placements)
    (after,) = ann.placements(a_pod("another", SHARE))

    (node,) = placements[0]["nodes"]
    assert (node["memory_free_before"], node["memory_free_after"]) == ([15] * 4, [5, 5, 15, 15])
    assert after["nodes"][0]["memory_free_before"] == [5, 5, 15, 15]
    assert after["nodes"][0]["core_free_before"] == [70, 70, 100, 100]


@pytest.mark.usefixtures("placing")
def test_the_command_says_it_to_people(webhook, machines, namespace, ann, tmp_path):
    machines(1)
    wait_until(lambda: ann.fits(*gang(4)), "the node is known")
    (tmp_path / "ca.crt").write_bytes(webhook.ca.cert_pem)
    (tmp_path / "token").write_text(ann.token)
    (tmp_path / "gang.json").write_text(json.dumps(manifest(*gang(4))))

    asked = ("--server", webhook.dry_run, "--token-file=token", "--certificate-authority=ca.crt")
    argv = [LINKWISE, "check", "gang.json", *asked, "--namespace", namespace]

    ran = answered_in_time(
        lambda: subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "  fits now on gpu-0\n    55.2 GB/s modelled all-reduce bandwidth" in ran.stdout
    assert "    left on gpu-0: 4 of 8 GPUs, of 8 that are free now\n" in ran.stdout


# The last, since it ends the scorer.
def test_a_leader_that_died_is_not_waited_for(placing, ann):
    placing.process.signal(signal.SIGKILL)
    placing.process.child.wait()

    unknown = ["placement is not known: the scorer cannot be asked."]
    wait_until(lambda: ann.ask(*gang(2))["notes"] == unknown, "the answer says so")
    assert [pod["placement"] for pod in ann.ask(*gang(2))["pods"]] == [None, None]
