import socket

import pytest
from support.dashboard import CLUSTER

from linkwise.dashboard.browser import open_browser


def test_a_port_that_is_taken_is_one_line(linkwise, write):
    write("cluster.yaml", CLUSTER)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ran = linkwise("dashboard", "--cluster", "cluster.yaml", "--no-browser", "--port", port)

    assert ran.code == 2
    assert ran.err.startswith(f"linkwise: port {port}: address already in use.")
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize("options", [("--port", "99999"), ("--port", "x")], ids=["high", "word"])
def test_a_port_that_is_none_is_refused(linkwise, options):
    assert linkwise("dashboard", *options).code == 2


def test_a_file_without_nodes_is_refused(linkwise, write):
    write("cluster.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n")

    ran = linkwise("dashboard", "--cluster", "cluster.yaml", "--no-browser")

    assert ran.code == 2
    assert "there is no node in it" in ran.err


def test_the_browser_gets_a_file_that_others_cannot_read(monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or True)

    path = open_browser("http://127.0.0.1:1/s-<&>/")

    assert opened == [path.as_uri()]
    assert "127.0.0.1" not in opened[0]
    assert path.stat().st_mode & 0o077 == 0
    assert "url=http://127.0.0.1:1/s-&lt;&amp;&gt;/" in path.read_text()
    path.unlink()


def test_without_a_browser_no_file_stays(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("webbrowser.open", lambda _: False)

    assert open_browser("http://127.0.0.1:1/s/") is None
    assert not list(tmp_path.iterdir())
