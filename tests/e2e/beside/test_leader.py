"""A scheduler and its scorer that another pair replaces, and that come back."""

import shutil
import signal
import subprocess
from dataclasses import replace

import pytest
from controlplane.binaries import Binaries
from controlplane.cards import overfull
from controlplane.history import History
from controlplane.process import wait_until
from controlplane.scorer import holder
from controlplane.shares import CARDS, MEMORY, bound, create_all, share, share_nodes
from controlplane.sidecar import restart_scheduler, run_sidecar

HOST = "other-pod"
APART = ("unshare", "--user", "--map-root-user", "--uts")
"""Gives a program a host name of its own, as a pod has one."""


@pytest.fixture
def other(plane, tmp_path, monkeypatch):
    """A plane whose schedulers have another host name."""
    if not shutil.which(APART[0]) or subprocess.run([*APART, "true"], check=False).returncode:
        pytest.skip("no process can be given another host name here")
    script = tmp_path / "scheduler"
    program = plane.site.binaries["kube-scheduler"]
    inside = f'hostname {HOST} && exec {program} "$@"'
    script.write_text(f"#!/bin/sh\nexec {' '.join(APART)} sh -c '{inside}' scheduler \"$@\"\n")
    script.chmod(0o755)
    binaries = Binaries({**plane.site.binaries.paths, "kube-scheduler": script})
    monkeypatch.setattr(plane, "site", replace(plane.site, binaries=binaries))
    return plane


@pytest.fixture
def first(plane, sidecar):
    """The pair of all tests here; it leads again in the end."""
    yield sidecar
    for process in (sidecar.scorer.process, sidecar.scheduler):
        process.signal(signal.SIGCONT)
    restart_scheduler(plane, sidecar)


def test_a_pair_that_was_stopped_past_its_lease_gives_nothing_when_it_goes_on(
    pods, nodes, first, other, tmp_path
):
    nodes(share_nodes(2))
    cards = 2 * CARDS

    def fill(turn, count):
        create_all(pods, {f"{turn}-{i}": (share(MEMORY, 100), {}) for i in range(count)})

    def clear(turn, count):
        for i in range(count):
            pods.api.delete(f"{pods.path}/{turn}-{i}", gracePeriodSeconds="0")

    def all_taken():
        return len(bound(pods, history)) == cards

    with History(pods.api) as history:
        fill("first", cards)
        wait_until(all_taken, "the first pair gives every card")
        for process in (first.scheduler, first.scorer.process):
            process.signal(signal.SIGSTOP)
        clear("first", cards // 2)
        fill("second", cards // 2)
        with run_sidecar(other, tmp_path, HOSTNAME=HOST):
            assert holder(other) == HOST
            wait_until(all_taken, "the second pair gives what became free, and nothing else")
            # The first one still believes that it may give what is taken by now.
            clear("second", 1)
            for process in (first.scorer.process, first.scheduler):
                process.signal(signal.SIGCONT)
            fill("third", 1)
            wait_until(all_taken, "the second pair goes on")
            wait_until(lambda: not first.scheduler.runs, "the first one's scheduler gives up")
            wait_until(lambda: not first.scorer.leads, "and its scorer with it")
        history.catch_up()

    assert history.lost == ""
    assert overfull(history.writes, MEMORY) == []
