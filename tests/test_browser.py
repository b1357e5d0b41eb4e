"""Pages load while network devices of the machine come and go."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.browser import NEEDS_CHROMIUM

TESTS = Path(__file__).parent
# Of 200 requests most wait for one of 6 connections while the device appears.
LOADS_WHILE_A_DEVICE_APPEARS = """
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from support.browser import new_context, new_page, running_chromium

class Slow(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/6":
            for command in (
                "link add seen type veth peer name other", "link set other up",
                "addr add 192.0.2.1/32 dev seen", "link set seen up",
            ):
                subprocess.run(["ip", *command.split()], check=True)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"read")

    def log_message(self, *_):
        pass

subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
server = ThreadingHTTPServer(("127.0.0.1", 0), Slow)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}"
with running_chromium() as browser:
    page = new_page(new_context(browser, 800, "light"), url)
    page.goto(url)
    fetches = "Promise.all([...Array(200).keys()].map(n => fetch(`/${n}`).then(r => r.text())))"
    print(set(page.evaluate(fetches)), page.problems)
"""


def can_add_devices():
    """Return whether this process may make a network of its own, and has the program for it."""
    if shutil.which("ip") is None or shutil.which("unshare") is None:
        return False
    return subprocess.run(["unshare", "--net", "true"], check=False).returncode == 0  # noqa: S607


@NEEDS_CHROMIUM
def test_a_page_loads_while_a_network_device_appears():
    if not can_add_devices():
        pytest.skip("this user cannot add a network device")
    ran = subprocess.run(  # noqa: S603 - this Python.
        ["unshare", "--net", sys.executable, "-c", LOADS_WHILE_A_DEVICE_APPEARS],  # noqa: S607
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.stdout == "{'read'} []\n", ran.stderr
