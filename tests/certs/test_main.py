import asyncio

import aiohttp
from waiting import PATIENCE, until

from certs import __main__ as program
from certs.bundle import read_bundle
from certs.settings import read_settings

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
    settings = read_settings(
        {
            "LINKWISE_API_SERVER": cluster.url,
            "LINKWISE_HOST": "127.0.0.1",
            "LINKWISE_PROBE_PORT": str(port),
        }
    )
    stop = asyncio.Event()
    running = asyncio.create_task(program.run(settings, stop))
    path = f"/api/v1/namespaces/linkwise-system/secrets/{program.SECRET}"
    await until(lambda: path in cluster.objects and cluster.applied)
    async with asyncio.timeout(PATIENCE):
        while (await text(port, "/readyz"))[0] != 200:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    shown = samples((await text(port, "/metrics"))[1])
    bundle = read_bundle(cluster.secret()["data"])
    stop.set()
    await running
    expiry = "linkwise_certs_expiry_timestamp_seconds"
    trusted = 'linkwise_certs_trusted{registration="mutatingwebhookconfigurations"}'
    assert shown == {
        f'{expiry}{{certificate="leaf"}}': bundle.leaf.expiry,
        f'{expiry}{{certificate="ca"}}': bundle.signer.expiry,
        trusted: 1.0,
    }


def test_invalid_environment_exits_2_with_one_line(monkeypatch, capsys):
    monkeypatch.setenv("LINKWISE_CA_DAYS", "x")
    assert program.main() == 2
    message = "LINKWISE_CA_DAYS=x: write a number above 0, of 36525 at most\n"
    assert capsys.readouterr().err == message
