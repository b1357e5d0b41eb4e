"""Compare the inspection API of the scorer with the annotations of pods."""

import signal

import pytest
from controlplane.cards import shares
from controlplane.process import wait_until
from controlplane.scorer import wait_for_leader
from controlplane.shares import create_all, share, share_nodes

TURNS = 4


@pytest.fixture
def killed(plane, sidecar):
    """Kills the scorer; what is given back starts it again, as a kubelet would."""
    process = sidecar.scorer.process

    def start():
        plane.processes.stop(process)
        plane.processes.start(process)
        wait_for_leader(sidecar.scorer)

    def kill():
        process.signal(signal.SIGKILL)
        return start

    yield kill
    if not process.runs:
        start()


def test_a_scorer_that_was_killed_reports_the_records_of_the_pods_again(
    pods, nodes, sidecar, killed
):
    nodes(share_nodes(2))

    def recorded():
        found = {}
        for node in sidecar.scorer.look("/v1/nodes")["nodes"]:
            for gpu in node["gpus"]:
                for one in gpu["holders"]:
                    held = found.setdefault(one["uid"], {})
                    held[node["name"], gpu["i"]] = (one["mem"], one["core"])
        return found

    def true():
        written = {pod["metadata"]["uid"]: shares(pod) for pod in pods.all().values()}
        return {uid: held for uid, held in written.items() if held}

    def agree():
        return recorded() == true() and len(true()) == len(pods.all())

    for turn in range(TURNS):  # Each leaves two pods more.
        create_all(pods, {f"pod-{turn}-{i}": (share(3, 20), {}) for i in range(8)})
        start = killed()
        # Some of them are bound by now, some are about to be, and some wait.
        for i in range(6):
            pods.api.delete(f"{pods.path}/pod-{turn}-{i}", gracePeriodSeconds="0")
        start()

        wait_until(agree, "the scorer says what is so")
