"""The demos of `make up`: a gang on simulated nodes, also by claims, or in containers of a node."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from controlplane.binaries import Binaries, MissingError, node_binaries
from controlplane.claims_nodes import CLASSES, FENCED, ClaimsNodes, device_class, gets_claim
from controlplane.installed_plane import HOME, Trial, install, place_demo
from controlplane.manifests import NAMESPACE
from controlplane.node.agent import Agent, agent_of
from controlplane.node.gpus import StandInGPUs
from controlplane.node.machine import RealNode, real_node, unavailable
from controlplane.node.place import Place
from controlplane.nodes import add_nodes
from controlplane.plane import ControlPlane
from controlplane.pods import Pods
from controlplane.process import NotReadyError, wait_until
from nvml.standin import compiler

from linkwise.cluster import keys
from linkwise.cluster.nodes.node import Node
from linkwise.topology import catalogue

_ROOT = Path(__file__).parents[2]
_PODS = f"/api/v1/namespaces/{HOME}/pods"
_REAL, _MACHINE = "gpu-0", "dgx1-v100"
_COLUMNS = (
    "POD:.status.reservedFor[*].name,NODE:.status.allocation.devices.results[*].pool"
    ",DEVICES:.status.allocation.devices.results[*].device"
)
NO_KWOK = ("--manage-all-nodes=false", "--manage-nodes-with-label-selector=type=kwok")
"""Flags with which kwok leaves nodes alone that have a kubelet."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Shown:
    """A demo that runs."""

    text: str
    """What happened, and what people can try."""
    place: Place | None = None
    """Of the real node."""


class Demo(Protocol):
    """What runs on the control plane."""

    flags: Mapping[str, Sequence[str]]
    """Of the control plane's programs."""

    def run(self, plane: ControlPlane) -> AbstractContextManager[Shown]:
        """Install Linkwise, and run the demo until the block ends."""


@dataclass(frozen=True)
class NodesDemo:
    """A gang that is placed on nodes which kwok simulates."""

    nodes: Sequence[Node]
    say: Say
    flags: ClassVar[Mapping[str, Sequence[str]]] = {}

    @contextmanager
    def run(self, plane: ControlPlane) -> Iterator[Shown]:
        """Install Linkwise, and place the gang."""
        # Before the webhook starts, so that it knows them when it is ready.
        add_nodes(plane.api, self.nodes)
        self.say("Installing Linkwise ...")
        trial = install(plane)
        place_demo(plane, "workers.yaml")
        kubectl, linkwise = _programs(plane)
        yield Shown(f"""\
{len(self.nodes)} nodes at {plane.server}, with Linkwise's webhook, scorer and certs. Try it here:

  {_export(plane)}

Four workers were placed together, on the GPUs with the fastest links. To see the GPUs of each pod:

  {kubectl} get gangs
  {linkwise} inspect

{_admission(plane, trial)}

kwok simulates the nodes and all pods on them, those of linkwise-system too.""")


@dataclass(frozen=True)
class ClaimsDemo:
    """A gang on nodes of kwok whose GPUs are in ResourceSlices, as NVIDIA's DRA driver has them."""

    say: Say
    flags: ClassVar[Mapping[str, Sequence[str]]] = FENCED

    @contextmanager
    def run(self, plane: ControlPlane) -> Iterator[Shown]:
        """Install Linkwise, and place the gang."""
        plane.api.create(CLASSES, device_class())
        nodes = ClaimsNodes(plane.api, {}).add(2, _MACHINE)
        self.say("Installing Linkwise ...")
        install(plane)
        pods = Pods(plane.api, HOME)
        wait_until(lambda: gets_claim(pods), "admission knows the claims nodes")
        place_demo(plane, "claims.yaml")
        kubectl, linkwise = _programs(plane)
        yield Shown(f"""\
{len(nodes)} nodes at {plane.server}, with Linkwise's webhook, scorer and certs; no agent.
Their GPUs are in ResourceSlices, as NVIDIA's DRA driver writes them. Try it here:

  {_export(plane)}

Four workers that ask for nvidia.com/gpu were placed together, on the GPUs with the fastest links.
Each has a ResourceClaim for its GPU, which kube-scheduler allocated. The claims, and the plan:

  {kubectl} get resourceclaims -o custom-columns='{_COLUMNS}'
  {linkwise} explain gang {HOME}/mpijob-vgg16
  {linkwise} inspect

Claims of others get no GPU of these nodes:

  {kubectl} get devicetaintrules

kwok simulates the nodes and all pods on them; no driver prepares a device.""")


@dataclass(frozen=True)
class ContainerDemo:
    """A gang that runs in containers: a kubelet, containerd and the agent on this machine."""

    programs: Binaries
    say: Say
    flags: ClassVar[Mapping[str, Sequence[str]]] = {"kwok": NO_KWOK}

    @contextmanager
    def run(self, plane: ControlPlane) -> Iterator[Shown]:
        """Install Linkwise, start the node, and run the gang to its output."""
        self.say("Installing Linkwise ...")
        trial = install(plane)
        self.say("Starting containerd, kubelet and agent ...")
        with node_with_agent(plane, self.programs) as (node, _agent):
            self.say("Starting a pod with one GPU, then a gang of containers ...")
            _start_notebook(plane)
            place_demo(plane, "containers.yaml")
            yield Shown(_text(plane, trial, node, _outputs(node)), node.place)


@contextmanager
def node_with_agent(plane: ControlPlane, programs: Binaries) -> Iterator[tuple[RealNode, Agent]]:
    """Run a DGX-1 V100 of mode topology beside what is installed, until its GPUs are offered."""
    # Processes run in place of these pods; the node has no image of them.
    plane.kubectl("scale", "deployment", "--all", "--replicas=0", f"--namespace={NAMESPACE}")
    with real_node(plane, programs, _REAL, {keys.NODE_MODE: "topology"}) as node:
        agent = agent_of(node, StandInGPUs(node.root, catalogue.entry(_MACHINE).machine))
        try:
            agent.start()
            wait_until(lambda: _offers_gpus(node), f"{_REAL} offers its GPUs")
            yield node, agent
        finally:
            if not node.place.kept:
                agent.stop()


def node_programs(say: Say) -> Binaries:
    """Return the programs of a real node, after building those that are missing.

    Raises:
        MissingError: It cannot run on this machine: one line for people.
        BuildError: A build failed.
    """
    missing = unavailable() or ("" if compiler() else "the stand-in for NVIDIA's driver needs gcc")
    if missing:
        raise MissingError(f"no real node: {missing}")
    return node_binaries(say)


def _offers_gpus(node: RealNode) -> bool:
    allocatable = node.plane.api.get(node.path)["status"]["allocatable"]
    return allocatable.get(keys.GPU_WHOLE, "0") != "0"


def _start_notebook(plane: ControlPlane) -> None:
    """Run a pod that has a GPU, so that index order is not the best set of the others."""
    applied = plane.kubectl("apply", "-f", str(_ROOT / "docs/demo/notebook.yaml"))
    if applied.returncode:
        raise NotReadyError(applied.stderr)

    def runs() -> bool:
        return bool(plane.api.get(f"{_PODS}/notebook")["status"].get("phase") == "Running")

    wait_until(runs, "the pod notebook runs", 180)


def _outputs(node: RealNode) -> str:
    """Return what the containers of the gang have written, a line each."""
    lines: list[str] = []

    def written() -> bool:
        pods = node.plane.api.get(_PODS, labelSelector="app=vgg16")["items"]
        lines[:] = sorted(node.log(pod, "mpi") for pod in pods)
        # Four workers and a launcher.
        return len(lines) == 5 and all(lines)

    try:
        wait_until(written, "all containers of the gang have written their GPUs")
    except NotReadyError as error:
        events = node.plane.kubectl("get", "events", f"--namespace={HOME}").stdout
        raise NotReadyError(f"{error}\n{events}") from None
    return "".join(lines)


def _text(plane: ControlPlane, trial: Trial, node: RealNode, outputs: str) -> str:
    kubectl, linkwise = _programs(plane)
    return f"""\
A notebook has one GPU. Four workers were then placed together, on the free GPUs with the fastest
links; in index order they would have the next four. Output of their containers:

{outputs}
They run on the node {node.name}: a kubelet, containerd, Linkwise's agent, and a stand-in for the
driver that serves a DGX-1 V100. The control plane is at {plane.server}. Try it here:

  {_export(plane)}
  {kubectl} get gangs
  {linkwise} inspect
  cat {node.place.folder}/log/pods/{HOME}_*/mpi/*.log
  {kubectl} exec vgg16-worker-0 -- ls /dev

{_admission(plane, trial)}"""


def _export(plane: ControlPlane) -> str:
    return f"export KUBECONFIG={plane.site.folder.resolve() / 'kubeconfig'}"


def _programs(plane: ControlPlane) -> tuple[str, str]:
    """Return kubectl and linkwise as people can call them from this folder."""
    kubectl = "kubectl" if shutil.which("kubectl") else plane.site.binaries["kubectl"]
    return kubectl, os.path.relpath(Path(sys.executable).with_name("linkwise"))


def _admission(plane: ControlPlane, trial: Trial) -> str:
    """Return what people can try of admission; every command works as it stands here."""
    kubectl, linkwise = _programs(plane)
    demo = os.path.relpath(_ROOT / "docs/demo")
    asked = (
        f"--server {trial.dry_run} --token-file {os.path.relpath(trial.token)}"
        f" --certificate-authority {os.path.relpath(trial.authority)}"
    )
    return f"""\
A profile sets a driver version. A pod that it selects is changed: a label by the profile, an
affinity by its class. Where no node offers nvidia.com/gpu, a warning says so:

  {kubectl} apply -f {demo}/profile.yaml
  {kubectl} create -f {demo}/driver.yaml -o yaml

A share that no card can give is refused, with a suggested fix:

  {kubectl} create -f {demo}/denied.yaml

The same results with reasons, without creating anything:

  {linkwise} check {demo}/gang.yaml {asked}"""
