import asyncio
import json
import os
import signal
import sys

import pytest
from controlplane.process import free_ports
from support.waiting import PATIENCE, until

from webhook.__main__ import main


def test_invalid_setting_exits_with_one_line(monkeypatch, capsys):
    monkeypatch.setenv("LINKWISE_LOG_LEVEL", "loud")

    assert main() == 2
    assert capsys.readouterr().err.startswith("LINKWISE_LOG_LEVEL=loud: write debug, ")


async def test_process_serves_until_sigterm(cluster):
    port, probe_port, dry_run_port = free_ports(3)
    environment = {
        **os.environ,
        "LINKWISE_HOST": "127.0.0.1",
        "LINKWISE_PORT": str(port),
        "LINKWISE_PROBE_PORT": str(probe_port),
        "LINKWISE_DRY_RUN_PORT": str(dry_run_port),
        "LINKWISE_API_SERVER": cluster.url,
        "LINKWISE_DRAIN_SECONDS": "0",
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "webhook", env=environment, stdout=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(PATIENCE):
            while json.loads(await process.stdout.readline())["msg"] != "Listening":
                pass
    finally:
        process.send_signal(signal.SIGTERM)
        await process.communicate()
    assert process.returncode == 0


@pytest.mark.parametrize("started", [{"drain_seconds": 60}], indirect=True)
async def test_draining_webhook_serves_and_is_not_ready(started):
    await started.ready()
    started.stop.set()
    await until(lambda: started.lines[-1]["msg"] == "Draining")

    assert await started.probe() == (503, "draining: no new connections are accepted\n")
    status, headers, _ = await started.post("/mutate", b"")
    assert (status, headers["Connection"]) == (400, "close")
    started.task.cancel()


@pytest.mark.parametrize("started", [{"certificate": "/nowhere/tls.crt"}], indirect=True)
async def test_webhook_without_a_certificate_is_not_ready(started):
    status, reason = await started.probe()

    assert status == 503
    assert "certificate: /nowhere/tls.crt: No such file or directory\n" in reason
