"""`linkwise check --server` against the webhook's process, with real tokens."""

import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from controlplane.process import wait_until
from controlplane.webhook_service import in_service

from linkwise.cluster import keys

LINKWISE = Path(sys.executable).with_name("linkwise")
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  containers:
  - name: main
    resources:
      limits: {aliyun.com/gpu-mem: 2, aliyun.com/gpu-core.percentage: CORE}
"""
GOOD = POD.replace("CORE", "20").replace("NAME", "good")
BAD = POD.replace("CORE", "22").replace("NAME", "bad")


class Ran(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def check(webhook, namespace, tmp_path):
    """Checks good.yaml and bad.yaml; `server`, `token` and so on replace what is asked with."""
    (tmp_path / "ca.crt").write_bytes(webhook.ca.cert_pem)
    (tmp_path / "good.yaml").write_text(GOOD)
    (tmp_path / "bad.yaml").write_text(BAD)
    (tmp_path / "token").write_text(
        token(webhook, namespace, f"--audience={keys.DRY_RUN_AUDIENCE}")
    )

    def call(*arguments, files=("good.yaml", "bad.yaml"), lines=1, **replaced):
        asked = {
            "server": webhook.dry_run,
            "token-file": "token",
            "certificate-authority": "ca.crt",
            "namespace": namespace,
            **{name.replace("_", "-"): value for name, value in replaced.items()},
        }
        options = [f"--{name}={value}" for name, value in asked.items()]
        ran = subprocess.run(
            [LINKWISE, "check", *files, *options, *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.stderr.count("\n") <= lines
        return Ran(ran.returncode, ran.stdout, ran.stderr)

    return call


@pytest.fixture
def allowed(webhook, namespace):
    """Lets the person of the tokens create pods."""
    bound = webhook.plane.kubectl(
        "create", "rolebinding", "ann", "--clusterrole=edit", f"--serviceaccount={namespace}:ann",
        f"--namespace={namespace}",
    )  # fmt: skip
    assert bound.returncode == 0, bound.stderr


def token(webhook, namespace, *options):
    """Make a token as people do."""
    kubectl, home = webhook.plane.kubectl, f"--namespace={namespace}"
    kubectl("create", "serviceaccount", "ann", home)
    made = kubectl("create", "token", "ann", home, *options)
    assert made.returncode == 0, made.stderr
    return made.stdout


@pytest.mark.usefixtures("allowed")
def test_the_report_of_a_server_is_that_of_the_command_alone(check, tmp_path, namespace):
    wait_until(lambda: check().code == 1, "the role is in force")

    alone = subprocess.run(
        [LINKWISE, "check", "good.yaml", "bad.yaml", f"--namespace={namespace}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    remote = check()
    assert "error LW101" in remote.out
    assert "bad.yaml:8" in remote.out
    # A real cluster has no nodes here, of which the command alone knows nothing.
    printed = [line for line in remote.out.splitlines() if not _is_of_capacity(line)]
    assert printed[:-1] == alone.stdout.splitlines()[:-1]
    good, bad = json.loads(check("-o", "json").out)["items"]
    assert [good["verdict"], bad["verdict"]] == ["allowed", "denied"]
    assert good["patched"]["spec"]["schedulingGates"] == [{"name": keys.GANG}]
    assert check(files=["good.yaml"]).code == 0


def _is_of_capacity(line):
    return "LW111" in line or "no node offers" in line or line.startswith("    fix: Ask for less")


def test_a_user_without_the_right_gets_the_reason_and_a_suggestion(
    check, webhook, namespace, tmp_path
):
    forbidden = check("-o", "json")
    assert (forbidden.code, forbidden.out) == (2, "")
    assert f"you may not create pods in namespace {namespace}. Ask for a role" in forbidden.err

    (tmp_path / "servers").write_text(token(webhook, namespace))
    other = check(token_file="servers")  # noqa: S106 - its name.
    assert (other.code, other.out) == (2, "")
    assert "it rejects the token in servers. Make a new one: kubectl create" in other.err


@pytest.mark.usefixtures("allowed")
def test_a_file_that_the_server_refuses_is_reported(check, tmp_path):
    wait_until(lambda: check().code == 1, "the role is in force")
    (tmp_path / "large.yaml").write_text(f"{GOOD}# {'x' * (1 << 20)}\n")
    (tmp_path / "broken.yaml").write_text("apiVersion: v1\nkind: [\n")

    assert "large.yaml is too much for one question" in check(files=["large.yaml"]).err
    broken = check(files=["good.yaml", "broken.yaml"], lines=2)
    assert broken.code == 2
    assert broken.err.startswith("linkwise: broken.yaml:3: ")
    # The other file is judged all the same.
    assert "good.yaml" in broken.out


def test_the_wrong_port_of_the_webhook_is_recognized(check, webhook):
    admission, _, probes = (f"https://127.0.0.1:{port}" for port in webhook.ports)

    assert "answers with status 404" in check(server=admission).err
    assert "this is no TLS port" in check(server=probes).err


@pytest.fixture
def ann(webhook, namespace, tmp_path):
    """The kubeconfig of a user without a token, and what gives the user a role in the namespace."""
    config = json.loads(Path(webhook.plane.kubeconfig).read_text())
    config["users"][0]["user"]["as"] = "ann"
    config["contexts"][0]["context"]["namespace"] = namespace
    file = tmp_path / "ann.config"
    file.write_text(json.dumps(config))

    def may(role):
        home = f"--namespace={namespace}"
        bound = webhook.plane.kubectl(
            "create", "rolebinding", role, f"--clusterrole={role}", "--user=ann", home
        )
        assert bound.returncode == 0, bound.stderr

    return file, may


def test_whoever_may_edit_a_namespace_asks_through_the_api_server(
    webhook, namespace, ann, tmp_path
):
    config, may = ann
    (tmp_path / "good.yaml").write_text(GOOD)
    (tmp_path / "bad.yaml").write_text(BAD)
    (tmp_path / "other.yaml").write_text(GOOD.replace("name: good", "name: a, namespace: other"))

    def check(*files):
        ran = subprocess.run(
            [LINKWISE, "check", *files, "--server", "cluster", "--kubeconfig", config],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        return Ran(ran.returncode, ran.stdout, ran.stderr)

    with in_service(webhook):
        may("view")
        without = check("good.yaml")
        assert (without.code, without.out) == (2, "")
        assert f"Ask for the role edit in namespace {namespace}" in without.err

        may("edit")
        wait_until(lambda: check("good.yaml").code == 0, "the role is in force")
        both = check("good.yaml", "bad.yaml")
        assert both.code == 1
        assert f"denied Pod {namespace}/bad bad.yaml:1" in both.out
        assert "bad.yaml:8" in both.out

        other = check("other.yaml")
        assert (other.code, other.out) == (2, "")
        assert (
            f"this token is for pods of namespace {namespace} alone, and not of other" in other.err
        )
        # The way leads to one port of one Service.
        probe = "/api/v1/namespaces/linkwise-system/services/http:linkwise-webhook:8444/proxy/"
        asked = webhook.plane.kubectl(
            "create", "--raw", probe, "-f", str(tmp_path / "good.yaml"), "--as=ann"
        )
        assert "forbidden" in asked.stderr
