"""Where pods would go: dry runs tell it as the scorer that leads decides it, with real tokens."""

import json
import signal
import ssl
import subprocess
import sys
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from controlplane.pods import a_pod
from controlplane.process import wait_until
from msgspec import convert

from cluster import keys
from cluster.pod import Pod
from cluster.record import parse_record

LINKWISE = Path(sys.executable).with_name("linkwise")
SHARES = {"name": "share-0", "machine": "t4x4", "mode": "core_mem", "gpuMemory": 15}
SHARE = {keys.GPU_MEM: 10, keys.GPU_CORE: 30}


@pytest.fixture
def token(plane, namespace):
    """The token of somebody who may create pods in the namespace."""
    home = f"--namespace={namespace}"
    plane.kubectl("create", "serviceaccount", "ann", home)
    account = f"--serviceaccount={namespace}:ann"
    plane.kubectl("create", "rolebinding", "ann", "--clusterrole=edit", account, home)
    made = plane.kubectl("create", "token", "ann", home, f"--audience={keys.DRY_RUN_AUDIENCE}")
    assert made.returncode == 0, made.stderr
    return made.stdout


@pytest.fixture
def dry_run(webhook, namespace, token):
    """Asks about pods; returns the placement of each, and the warnings."""
    context = ssl.create_default_context(cadata=webhook.ca.cert_pem.decode())

    def answer(*pods):
        request = Request(  # noqa: S310
            f"{webhook.dry_run}/v1/dry-run?namespace={namespace}",
            json.dumps(manifest(*pods)).encode(),
            {"Content-Type": "application/json", "Authorization": f"Bearer {token}"},
        )
        try:
            with urlopen(request, timeout=30, context=context) as found:  # noqa: S310
                return json.load(found)
        except HTTPError as error:
            error.close()
            return None

    def ask(*pods):
        wait_until(lambda: answer(*pods) is not None, "the role is in force")
        told = answer(*pods)
        assert {pod["verdict"] for pod in told["pods"]} == {"allowed"}
        return [pod["placement"] for pod in told["pods"]], told["warnings"]

    return ask


def manifest(*pods):
    items = [{"apiVersion": "v1", "kind": "Pod", **pod} for pod in pods]
    return {"apiVersion": "v1", "kind": "List", "items": items}


def gang(count, gpus=1):
    mark = {keys.GANG: "bert", keys.GANG_SIZE: str(count)}
    limits = {keys.GPU_WHOLE: gpus}
    return [a_pod(f"bert-{i}", limits, annotations=mark) for i in range(count)]


def placed(plane, namespace):
    """Return node and GPUs of each pod, by its record."""
    found = plane.api.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
    records = {
        pod["metadata"]["name"]: parse_record(convert(pod, Pod).annotations) for pod in found
    }
    return {
        name: (record.node, sorted(share.i for share in record.gpus))
        for name, record in records.items()
        if record
    }


def told(placements):
    """Return node and GPUs of each pod, as a dry run says."""
    return {pod["name"]: (pod["node"], pod["gpus"]) for one in placements for pod in one["pods"]}


def create(plane, namespace, *pods):
    for pod in pods:
        plane.api.create(f"/api/v1/namespaces/{namespace}/pods", pod)
    wait_until(lambda: len(placed(plane, namespace)) == len(pods), "they have their GPUs", 60)


# The first, while no scorer has run here.
def test_where_nobody_leads_admission_is_answered_and_a_warning_says_why(dry_run):
    placements, warnings = dry_run(*gang(2))

    assert placements == [None, None]
    assert warnings == ["placement is not known: no scorer has led so far."]


@pytest.mark.usefixtures("placing")
def test_a_gang_goes_where_the_dry_run_said(plane, machines, namespace, dry_run):
    machines(2)
    wait_until(lambda: dry_run(*gang(4))[0][0]["fits"], "the nodes are known")

    placements, warnings = dry_run(*gang(4))
    assert warnings == []
    assert plane.api.get(f"/api/v1/namespaces/{namespace}/pods")["items"] == []
    create(plane, namespace, *gang(4))

    assert placed(plane, namespace) == told(placements)
    for one in placements:
        assert (one["gang"], one["bandwidth"], one["best_possible"]) == ("bert", 55.2, 55.2)
        (node,) = one["nodes"]
        assert (node["free_before"], node["free_after"], node["gpus"]) == (8, 4, 8)


@pytest.mark.usefixtures("placing")
def test_a_gang_that_does_not_fit_is_told_why_with_the_nodes_counted(machines, dry_run):
    machines(2)
    wait_until(lambda: dry_run(*gang(4))[0][0]["fits"], "the nodes are known")

    placements, _ = dry_run(*gang(5, gpus=4))

    assert not any(one["fits"] for one in placements)
    assert placements[0]["reason"].startswith(
        "needs 20 GPUs as 5 × 4 GPUs; 4 of 5 workers fit now, on 2 of "
    )


@pytest.mark.usefixtures("placing")
def test_shares_go_where_the_dry_run_said_and_leave_what_it_said(plane, nodes, namespace, dry_run):
    nodes(SHARES)
    shares = [a_pod(f"share-{i}", SHARE) for i in range(2)]
    wait_until(lambda: dry_run(shares[0])[0][0]["fits"], "the node is known")

    placements, _ = dry_run(*shares)
    create(plane, namespace, *shares)
    (after,), _ = dry_run(a_pod("another", SHARE))

    assert placed(plane, namespace) == told(placements)
    (node,) = placements[0]["nodes"]
    assert (node["memory_free_before"], node["memory_free_after"]) == ([15] * 4, [5, 5, 15, 15])
    assert after["nodes"][0]["memory_free_before"] == [5, 5, 15, 15]
    assert after["nodes"][0]["core_free_before"] == [70, 70, 100, 100]


@pytest.mark.usefixtures("placing")
def test_the_command_says_it_to_people(webhook, machines, namespace, token, tmp_path, dry_run):
    machines(1)
    wait_until(lambda: dry_run(*gang(4))[0][0]["fits"], "the node is known")
    (tmp_path / "ca.crt").write_bytes(webhook.ca.cert_pem)
    (tmp_path / "token").write_text(token)
    (tmp_path / "gang.json").write_text(json.dumps(manifest(*gang(4))))

    asked = ("--server", webhook.dry_run, "--token-file=token", "--certificate-authority=ca.crt")
    ran = subprocess.run(
        [LINKWISE, "check", "gang.json", *asked, "--namespace", namespace],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (ran.returncode, ran.stderr) == (0, "")
    assert "  fits now on gpu-0\n    55.2 GB/s modelled all-reduce bandwidth" in ran.stdout
    assert "    left on gpu-0: 4 of 8 GPUs, of 8 that are free now\n" in ran.stdout


# The last, since it ends the scorer.
def test_a_leader_that_died_is_not_waited_for(placing, dry_run):
    placing.process.signal(signal.SIGKILL)

    placements, warnings = dry_run(*gang(2))

    assert placements == [None, None]
    assert warnings == ["placement is not known: the scorer cannot be asked."]
