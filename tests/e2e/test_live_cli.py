"""`linkwise snapshot`, `inspect` and `explain` on a real API server, as people run them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from controlplane.credentials import kubeconfig
from controlplane.gangs import make_gang
from controlplane.pods import Pods
from controlplane.process import wait_until
from controlplane.temporary import temporary_namespace
from controlplane.webhook_service import in_service

from linkwise.cluster import keys
from linkwise.planning.gang.crd import gangs_of

LINKWISE = Path(sys.executable).with_name("linkwise")
DGX = {"name": "gpu", "count": 2, "machine": "dgx1-v100", "mode": "topology"}
SHARED = {"name": "share", "machine": "t4x4", "mode": "core_mem", "gpuMemory": 15}


@pytest.fixture
def live(plane, tmp_path):
    """Runs the command as an administrator, or with another kubeconfig."""

    def call(*arguments, config=None):
        return subprocess.run(
            [LINKWISE, *arguments, "--kubeconfig", config or plane.kubeconfig],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )

    return call


def simulated(folder, pods):
    """Simulate pods, as people wrote them, on the snapshot."""
    (folder / "pods.json").write_text(
        json.dumps({"apiVersion": "v1", "kind": "List", "items": pods})
    )
    arguments = ["simulate", "pods.json", "--cluster", "snapshot.json", "-o", "json"]
    ran = subprocess.run(
        [LINKWISE, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    assert ran.stdout, ran.stderr
    return json.loads(ran.stdout)


def as_written(pods):
    """Return pods as they were before admission: what a snapshot keeps no trace of."""
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {key: pod["metadata"][key] for key in ("name", "namespace", "labels")},
            "spec": {"containers": pod["spec"]["containers"]},
        }
        for pod in pods
    ]


@pytest.mark.usefixtures("webhook")
def test_a_snapshot_has_the_nodes_and_pods_that_are_there_and_nothing_secret(
    nodes, pods, live, tmp_path
):
    nodes(DGX, SHARED)
    pods.create({"cpu": 1}, name="plain", spec={"nodeName": "gpu-0"})
    secret = {"name": "main", "image": "none", "env": [{"name": "KEY", "value": "hunter2"}]}
    pods.create(name="talks", spec={"containers": [secret]})

    first = live("snapshot", "--to", "snapshot.json")
    text = (tmp_path / "snapshot.json").read_text()

    assert (first.returncode, first.stdout, first.stderr) == (0, "", "")
    assert "hunter2" not in text
    assert "managedFields" not in text
    found = simulated(tmp_path, [_asking("a", pods.namespace)])
    assert [node["name"] for node in found["nodes"]] == ["gpu-0", "gpu-1", "share"]
    assert found["nodes"][0]["free_before"] == 8
    listed = [one["metadata"]["name"] for one in json.loads(text)["items"] if one["kind"] == "Pod"]
    assert {"plain", "talks"} <= set(listed)


@pytest.mark.usefixtures("webhook")
def test_a_snapshot_has_all_pods(plane, live):
    def snapshot():
        items = json.loads(live("snapshot").stdout)["items"]
        return sorted(one["metadata"]["name"] for one in items if one["kind"] == "Pod")

    def everywhere():
        return sorted(one["metadata"]["name"] for one in plane.api.get("/api/v1/pods")["items"])

    # What others left goes away between two looks.
    wait_until(lambda: snapshot() == everywhere(), "all are in it")


def _asking(name, namespace):
    container = {"name": "c", "resources": {"limits": {keys.GPU_WHOLE: "1"}}}
    metadata = {"name": name, "namespace": namespace}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [container]},
    }


@pytest.mark.usefixtures("placing_on_described_nodes")
def test_simulate_on_a_snapshot_agrees_with_the_planner_and_with_explain(
    plane, nodes, pods, live, tmp_path
):
    nodes(DGX)
    wait_until(
        lambda: "NVLink mesh" in live("inspect").stdout, "the machine is read from the policy", 60
    )
    make_gang(pods, "first", 3, 1)
    _placed(plane, pods, "first")
    assert live("snapshot", "--to", "snapshot.json").returncode == 0
    make_gang(pods, "second", 2, 2)
    made = _placed(plane, pods, "second")
    explained = json.loads(
        live("explain", "gang", f"{pods.namespace}/second", "-o", "json").stdout
    )["items"][0]

    [gang] = simulated(tmp_path, as_written(made))["gangs"]

    assert explained["state"] == "placed"
    assert (explained["nodes"], explained["gpus"]) == (gang["nodes"], gang["gpus"])
    assert explained["bandwidth"] == gang["bandwidth"]
    assert explained["best_possible"] == gang["best_possible"]
    shown = live("inspect", gang["nodes"][0]).stdout
    assert f"gang {pods.namespace}/second (2 pods" in shown
    assert f"{gang['bandwidth']:.1f} GB/s" in shown


@pytest.mark.usefixtures("placing_on_described_nodes")
def test_object_explain_and_simulate_give_a_waiting_gang_the_same_reason(
    plane, nodes, pods, live, tmp_path
):
    nodes({**DGX, "count": 1})
    assert live("snapshot", "--to", "snapshot.json").returncode == 0
    make_gang(pods, "big", 3, 4)
    reason = wait_for_reason(plane, pods, "big")
    made = list(pods.all().values())

    ran = live("explain", "pod", f"{pods.namespace}/big-0", "-o", "json")

    assert ran.returncode == 1
    explained = json.loads(ran.stdout)["items"][0]
    assert (explained["kind"], explained["name"], explained["reason"]) == ("gang", "big", reason)
    assert explained["help"] == ["it would not fit if nothing else ran: add nodes, or ask for less"]
    [gang] = simulated(tmp_path, as_written(made))["gangs"]
    assert gang["reason"] == reason


def _placed(plane, pods, gang):
    """Wait until a gang is bound; return its pods."""

    def members():
        found = [pod for name, pod in pods.all().items() if name.startswith(f"{gang}-")]
        return found if all(pod["spec"].get("nodeName") for pod in found) else []

    wait_until(lambda: bool(members()), f"{gang} is bound", 120)
    phase = lambda one: one.get("status", {}).get("phase")  # noqa: E731
    wait_until(
        lambda: any(
            phase(one) == "Placed"
            for one in plane.api.get(gangs_of(pods.namespace))["items"]
            if one["spec"]["gang"] == gang
        ),
        f"{gang} is reported as placed",
        60,
    )
    return members()


def wait_for_reason(plane, pods, gang):
    """Wait until a Gang object has a reason for waiting; return the reason."""

    def reason():
        for one in plane.api.get(gangs_of(pods.namespace))["items"]:
            status = one.get("status", {})
            if one["spec"]["gang"] == gang and status.get("phase") == "Waiting":
                return status["reason"]
        return ""

    wait_until(lambda: bool(reason()), f"{gang} has a reason for waiting", 120)
    return reason()


@pytest.mark.usefixtures("webhook")
def test_a_person_needs_the_role_that_ships_and_no_more(plane, nodes, namespace, live, tmp_path):
    nodes(DGX)
    plane.kubectl("create", "serviceaccount", "ann", f"--namespace={namespace}")
    config = tmp_path / "ann"
    token = plane.token(namespace, "ann")
    config.write_text(kubeconfig(plane.server, plane.ca_file, token))
    without = live("inspect", config=config)
    assert (without.returncode, without.stdout) == (2, "")
    assert "cannot list resource" in without.stderr
    assert "Ask for the ClusterRole linkwise-view." in without.stderr
    assert without.stderr.count("\n") == 1

    subject, name = f"--serviceaccount={namespace}:ann", f"ann-{namespace}"
    homes = (keys.PROFILE_NAMESPACE, keys.POLICY_NAMESPACE)
    role = (name, "--clusterrole=linkwise-view", subject)
    own = (name, "--role=linkwise-view", subject)
    bound = [
        plane.kubectl("create", "clusterrolebinding", *role),
        *(plane.kubectl("create", "rolebinding", *own, f"--namespace={home}") for home in homes),
    ]
    try:
        assert [one.returncode for one in bound] == [0, 0, 0], bound
        wait_until(lambda: not live("inspect", config=config).stderr, "the roles count", 120)
        seen = live("snapshot", config=config)
        assert (seen.returncode, seen.stderr) == (0, "")
        # What others left goes away between two looks.
        wait_until(
            lambda: live("snapshot", config=config).stdout == live("snapshot").stdout,
            "a person sees what an administrator does",
        )
    finally:
        plane.kubectl("delete", "clusterrolebinding", name)
        for home in homes:
            plane.kubectl("delete", "rolebinding", name, f"--namespace={home}")


@pytest.mark.usefixtures("placing_on_described_nodes")
def test_whoever_may_edit_one_namespace_learns_why_a_gang_of_it_waits(
    plane, webhook, nodes, pods, live, tmp_path
):
    nodes({**DGX, "count": 1})
    with temporary_namespace(plane.api, "theirs-") as theirs:
        make_gang(Pods(plane.api, theirs), "secret", 3, 2)
        wait_until(
            lambda: gang_phases(plane, theirs) == ["Placed"], "the other tenant's is placed", 120
        )
        make_gang(pods, "mine", 2, 8)
        reason = wait_for_reason(plane, pods, "mine")
        ann = editor(plane, pods.namespace, tmp_path)

        wait_until(
            lambda: live("explain", "gang", "mine", config=ann).returncode == 1, "the role counts"
        )
        ran = live("explain", "pod", "mine-0", "-o", "json", config=ann)
        refused = live("explain", "gang", f"{theirs}/secret", config=ann)
        page = live("dashboard", "--no-browser", config=ann)
        with in_service(webhook):
            asked = json.loads(live("explain", "gang", "mine", "-o", "json", config=ann).stdout)

    [item] = json.loads(ran.stdout)["items"]
    assert (item["kind"], item["state"], item["reason"]) == ("gang", "waits", reason)
    assert "1 node" in reason
    # The scorer's answer about its pods, by the API server.
    assert [(one["state"], one["reason"]) for one in asked["items"]] == [("never", reason)]
    for names in (theirs, "secret"):
        assert names not in ran.stdout
        assert names not in str(asked)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert f'in the namespace "{theirs}"' in refused.stderr
    assert (page.returncode, page.stdout) == (2, "")
    assert "Without it, `linkwise explain`" in page.stderr


def gang_phases(plane, namespace):
    return [
        one.get("status", {}).get("phase") for one in plane.api.get(gangs_of(namespace))["items"]
    ]


def editor(plane, namespace, folder):
    """Return the kubeconfig of someone who has the role `edit` in one namespace alone."""
    home = f"--namespace={namespace}"
    subject = f"--serviceaccount={namespace}:ann"
    plane.kubectl("create", "serviceaccount", "ann", home)
    bound = plane.kubectl("create", "rolebinding", "ann", "--clusterrole=edit", subject, home)
    assert bound.returncode == 0, bound.stderr
    config = folder / "ann"
    written = json.loads(kubeconfig(plane.server, plane.ca_file, plane.token(namespace, "ann")))
    written["contexts"][0]["context"]["namespace"] = namespace
    config.write_text(json.dumps(written))
    return config
