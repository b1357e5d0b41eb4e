"""The dashboard in the cluster on a real API server, with the tokens of ServiceAccounts."""

import json
import ssl
import sys
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from controlplane.gangs import make_gang
from controlplane.manifests import BASE
from controlplane.pods import Pods
from controlplane.process import Process, answers, free_ports, wait_until
from controlplane.temporary import temporary_namespace
from controlplane.webhook import access

from linkwise.cluster.keys import DASHBOARD

ACCESS = BASE.parent / "dashboard/access.yaml"
DGX = {"machine": "dgx1-v100", "mode": "topology"}
VIEWS = ("events", "node?name=gpu", "waiting", "namespaces", "past?at=1", "sets")


@pytest.fixture
def page(webhook, tmp_path):
    """The address of the page of a process with the rights that ship, and its certificate."""
    plane = webhook.plane
    plane.kubectl("apply", "-f", str(ACCESS))
    ports = free_ports(3)
    names = ("LINKWISE_PORT", "LINKWISE_LOCAL_PORT", "LINKWISE_PROBE_PORT")
    probes = f"http://127.0.0.1:{ports[2]}"
    process = Process(
        "dashboard",
        (sys.executable, "-m", "dashboard"),
        tmp_path / "dashboard.log",
        (probes,),
        env={
            **access(plane, tmp_path, "linkwise-dashboard"),
            **{name: str(port) for name, port in zip(names, ports, strict=True)},
            "LINKWISE_CERTIFICATE": str(plane.site.folder / "tls.crt"),
            "LINKWISE_KEY": str(plane.site.folder / "tls.key"),
        },
    )
    plane.processes.start(process)
    try:
        process.wait_ready(lambda: answers(f"{probes}/readyz"))
        yield f"https://localhost:{ports[0]}"
    finally:
        plane.processes.stop(process)
        plane.kubectl("delete", "-f", str(ACCESS))


@pytest.fixture
def get(page, webhook):
    """Returns the status and the text of a view for the owner of a token."""
    context = ssl.create_default_context(cadata=webhook.ca.cert_pem.decode())

    def get(view, token):
        headers = {"Authorization": f"Bearer {token}"}
        request = Request(f"{page}/api/{view}", headers=headers)  # noqa: S310
        try:
            with urlopen(request, timeout=60, context=context) as answer:  # noqa: S310
                return answer.status, answer.read().decode()
        except HTTPError as error:
            with error:
                return error.code, error.read().decode()

    return get


@pytest.fixture
def account(plane, namespace):
    """Makes ServiceAccounts; returns what makes their tokens."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    bindings = []

    def make(name, *roles):
        plane.api.create(path, {"metadata": {"name": name}})
        subject = f"--serviceaccount={namespace}:{name}"
        for role in roles:
            kind = "rolebinding" if role == "view" else "clusterrolebinding"
            words = [kind, f"{name}-{role}", f"--clusterrole={role}"]
            plane.kubectl("create", *words, subject, f"--namespace={namespace}")
            bindings.append((kind, f"{name}-{role}"))

        def token(audience=DASHBOARD):
            spec = {"audiences": [audience]} if audience else {}
            made = plane.api.create(f"{path}/{name}/token", {"spec": spec})
            return made["status"]["token"]

        return token

    yield make
    for kind, name in bindings:
        plane.kubectl("delete", kind, name, f"--namespace={namespace}")


@pytest.fixture
def other(plane):
    """A namespace of another tenant."""
    with temporary_namespace(plane.api, "hidden-") as name:
        yield name


@pytest.mark.usefixtures("placing_on_described_nodes")
def test_each_account_sees_the_pods_that_it_may_list(nodes, pods, other, account, get, plane):
    nodes({**DGX, "name": "gpu"})
    make_gang(pods, "train", 1, 4)
    make_gang(Pods(pods.api, other), "secret-gang", 1, 2)
    make_gang(Pods(pods.api, other), "secret-wait", 2, 8)
    everyone = account("all", "linkwise-view")
    tenant = account("tenant", "view", "linkwise-dashboard-user")
    nobody = account("nobody")

    def shown(token):
        """Return all that is shown to the owner of a token, as text."""
        return "".join(get(view, token)[1] for view in VIEWS)

    def sees_six_gpus(token):
        status, event = get("events", token)
        data = event.partition("data: ")[2].partition("\n")[0]
        rows = json.loads(data)["nodes"] if status == 200 else []
        return [row[5].count("#") for row in rows if row[0] == "gpu"] == [6]

    mine, names = tenant(), ("secret-gang", "secret-wait", other, f"{pods.namespace}/train")
    wait_until(lambda: sees_six_gpus(everyone()), "both gangs are placed and seen", 120)
    wait_until(lambda: sees_six_gpus(mine), "the tenant's roles count", 120)
    text = shown(everyone())
    assert [name for name in names if name not in text] == []

    text = shown(mine)
    assert f"{pods.namespace}/train" in text
    assert "another namespace" in text
    assert "secret" not in text
    assert other not in text
    status, text = get(f"unit?kind=gang&namespace={other}&name=secret-gang", mine)
    assert (status, text) == (200, "null")

    assert get("events", nobody())[0] == 403
    assert get("events", "forged")[0] == 401
    assert get("events", tenant(None))[0] == 401
    assert get("events", tenant("another"))[0] == 401

    unused = tenant()
    path = f"/api/v1/namespaces/{pods.namespace}/serviceaccounts/tenant"
    plane.api.delete(path)
    wait_until(lambda: get("events", unused)[0] == 401, "its tokens are revoked", 120)
