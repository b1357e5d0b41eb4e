import asyncio

import aiohttp
from support.waiting import until, until_true

from certs import __main__ as program
from certs.authorities import read_authorities
from certs.authority import expiry
from certs.leaf import read_leaf
from certs.settings import Settings

MUTATING = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/linkwise"


async def text(port, path):
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}{path}") as response,
    ):
        return response.status, await response.text()


def samples(exposed):
    lines = (line for line in exposed.splitlines() if line.startswith("linkwise_certs_"))
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


async def test_process_becomes_ready_and_exposes_expiry_and_trust(cluster, unused_tcp_port):
    port = unused_tcp_port
    hook = {"name": "pods.linkwise.dev", "clientConfig": {"url": "https://a/"}}
    cluster.put(MUTATING, {"webhooks": [hook]})
    settings = Settings.read(
        {
            "LINKWISE_API_SERVER": cluster.url,
            "LINKWISE_HOST": "127.0.0.1",
            "LINKWISE_PROBE_PORT": str(port),
        }
    )
    stop = asyncio.Event()
    running = asyncio.create_task(program.run(settings, stop))
    secrets = "/api/v1/namespaces/linkwise-system/secrets"
    await until(lambda: f"{secrets}/linkwise-ca" in cluster.objects and cluster.applied)

    async def is_ready():
        metrics = (await text(port, "/metrics"))[1]
        return 'certificate="scorer"' in metrics and (await text(port, "/readyz"))[0] == 200

    await until_true(is_ready)
    shown = samples((await text(port, "/metrics"))[1])
    authority = read_authorities(cluster.objects[f"{secrets}/linkwise-ca"]["data"]).current
    leaves = {
        server.name: read_leaf(cluster.objects[f"{secrets}/{server.secret}"]["data"])
        for server in settings.issuance.servers
    }
    stop.set()
    await running
    expiries = {name: expiry(leaf.certificate) for name, leaf in leaves.items()}
    assert values(shown, "expiry_timestamp_seconds") == {**expiries, "ca": authority.expiry}
    assert values(shown, "trusted") == {"mutatingwebhookconfigurations": 1.0}
    assert values(shown, "phase")["stable"] == 1.0
    assert sum(values(shown, "phase").values()) == 1.0
    assert values(shown, "transitions_total")["CAIssued"] == 1.0
    assert shown["linkwise_certs_phase_start_timestamp_seconds"] > 0


def values(shown, metric):
    """Return the samples of a metric by their label."""
    prefix = f"linkwise_certs_{metric}{{"
    return {
        name.partition('"')[2].rstrip('"}'): value
        for name, value in shown.items()
        if name.startswith(prefix)
    }


def test_invalid_environment_exits_2_with_one_line(monkeypatch, capsys):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "192.0.2.1")
    monkeypatch.setenv("LINKWISE_CA_DAYS", "x")
    assert program.main() == 2
    message = "LINKWISE_CA_DAYS=x: write a number above 0, of 36525 at most\n"
    assert capsys.readouterr().err == message
