"""A stand-in kubelet in a folder whose path is short enough for Unix sockets."""

import tempfile
from pathlib import Path

import pytest
from support.servers.kubelet_stub import Kubelet


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory(dir="/tmp") as path:  # a Unix socket has a short path
        yield Path(path) / "plugins"


@pytest.fixture
async def kubelet(folder):
    stub = Kubelet(folder)
    await stub.start()
    yield stub
    await stub.stop()
