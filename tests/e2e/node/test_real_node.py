"""The node of these tests itself: pods run there, and nothing of it stays."""

import os
import subprocess
import sys
from pathlib import Path

from controlplane.node.cleaner import hierarchies, processes
from controlplane.node.image import IMAGE
from controlplane.node.machine import real_node
from controlplane.process import wait_until


def a_pod(name, script):
    container = {"name": "main", "image": IMAGE, "command": ["sh", "-c", script]}
    return {
        "metadata": {"name": name},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
    }


def run(node, namespace, name, script):
    path = f"/api/v1/namespaces/{namespace}/pods"
    pod = node.plane.api.create(path, a_pod(name, script))
    wait_until(lambda: node.log(pod, "main").endswith("started\n"), f"{name} runs")
    return node.log(pod, "main")


def mounts():
    text = Path("/proc/self/mountinfo").read_text()
    return [line for line in text.splitlines() if "linkwise-node" in line]


def has_nothing_left(folder, name):
    cgroups = [root / name for root in hierarchies()]
    paths = [folder, Path("/sys/class/net", name), *cgroups]
    return not any(path.exists() for path in paths)


def test_a_real_node_runs_pods_before_and_after_a_reboot_and_leaves_nothing(
    plane, namespace, programs_of_node
):
    with real_node(plane, programs_of_node, "real", {"linkwise.dev/rack": "7"}) as node:
        assert plane.api.get(node.path)["metadata"]["labels"]["linkwise.dev/rack"] == "7"
        output = run(node, namespace, "first", "cat /proc/self/cgroup; echo started; sleep 600")
        assert f"/{node.place.name}/kubepods/besteffort/pod" in output
        assert len(processes(f"{node.place.name}/kubepods")) >= 2

        node.reboot()

        # The kubelet starts the container of the pod again.
        pod = plane.api.get(f"/api/v1/namespaces/{namespace}/pods/first")
        wait_until(lambda: node.log(pod, "main", 1).endswith("started\n"), "it runs again")
        run(node, namespace, "second", "echo started")
        place = node.place
        assert not mounts()

    assert has_nothing_left(place.folder, place.name)


ABANDONED = """
import time
from controlplane.node.place import a_place
from controlplane.process import Processes
with Processes() as processes, a_place(processes) as place:
    place.start()
    processes.start(place.process("daemon", ("sh", "-c", "setsid sleep 600 & sleep 600")))
    print(place.name, place.folder, flush=True)
    time.sleep(600)
"""


def test_a_place_is_empty_after_its_process_was_killed(programs_of_node):
    del programs_of_node  # Where a node can run, places can be made.
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    argv = [sys.executable, "-c", ABANDONED]
    with subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, text=True) as owner:
        name, folder = owner.stdout.readline().split()
        wait_until(lambda: len(processes(name)) >= 3, "its daemons run")

        owner.kill()

    wait_until(lambda: has_nothing_left(Path(folder), name), "the place is empty", 120)
