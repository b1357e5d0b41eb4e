"""The programs of a control plane, ready to be started: their flags and configuration."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from controlplane import credentials
from controlplane.binaries import HERE, STAGES, Binaries
from controlplane.process import Process

# Clients wait only for the API server.
_QPS = 500
_CONTROLLERS = (
    # Fills the roles admin, edit and view.
    "clusterrole-aggregation",
    "daemonset",
    "deployment",
    "disruption",
    "endpointslice",
    "garbage-collector",
    "job",
    "namespace",
    # Takes the taint from new nodes that keeps every pod away.
    "node-lifecycle",
    "pod-garbage-collector",
    "replicaset",
    # Ends the allocation of a claim when the last pod that uses it has ended.
    "resourceclaim",
    # Without it no ResourceQuota is in force.
    "resourcequota",
    "root-ca-certificate-publisher",
    "serviceaccount",
    "statefulset",
    "validatingadmissionpolicy-status",
)


@dataclass(frozen=True, slots=True)
class Site:
    """Folder, address and programs of a control plane."""

    folder: Path
    """Its data, keys, certificates, kubeconfigs and logs."""
    binaries: Binaries
    ports: Mapping[str, int]
    """The port of each program by its name, and `etcd-peer`."""
    flags: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """More than the usual ones, by program."""

    @property
    def server(self) -> str:
        """The API server's address."""
        return f"https://127.0.0.1:{self.ports['kube-apiserver']}"

    @property
    def ca_file(self) -> Path:
        """What verifies the API server: the certificate it makes for itself, and that one's CA."""
        return self.folder / "apiserver.crt"

    def kubeconfig(self, user: str) -> Path:
        """Return where the kubeconfig of one of the fixed users lies."""
        return self.folder / f"{user}.kubeconfig"

    def address(self, name: str) -> str:
        """Return where a program listens."""
        return f"127.0.0.1:{self.ports[name]}"

    def process(self, name: str, *flags: str, scheme: str = "https") -> Process:
        """Return a program with its flags."""
        return Process(
            name,
            (self.binaries[name], *flags, *self.flags.get(name, ())),
            self.folder / f"{name}.log",
            (f"{scheme}://{self.address(name)}",),
        )


def etcd(site: Site) -> Process:
    """Return etcd without fsync, since the data of a test may be lost."""
    client, peer = (f"http://{site.address(name)}" for name in ("etcd", "etcd-peer"))
    return site.process(
        "etcd",
        f"--data-dir={site.folder / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
        "--log-level=warn",
        scheme="http",
    )


def api_server(site: Site) -> Process:
    """Return the API server, which authenticates by tokens and authorizes by RBAC."""
    key = site.folder / credentials.SIGNING_KEY
    return site.process(
        "kube-apiserver",
        f"--etcd-servers=http://{site.address('etcd')}",
        "--bind-address=127.0.0.1",
        f"--secure-port={site.ports['kube-apiserver']}",
        # Nothing connects to it; else the address of an interface is asked for.
        "--advertise-address=192.0.2.1",
        "--endpoint-reconciler-type=none",
        f"--cert-dir={site.folder}",
        f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--token-auth-file={site.folder / credentials.USERS}",
        "--authorization-mode=RBAC",
        # For logs and exec: the name of a real node is no host name on this machine.
        "--kubelet-preferred-address-types=InternalIP",
        f"--kubelet-client-certificate={site.folder / credentials.KUBELET_CLIENT}",
        f"--kubelet-client-key={site.folder / credentials.KUBELET_CLIENT_KEY}",
        f"--admission-control-config-file={site.folder / credentials.ADMISSION}",
        # As kubeadm does, for the agent; Pod Security decides in which namespaces.
        "--allow-privileged=true",
        "--service-cluster-ip-range=10.96.0.0/16",
        # Thousands of pods are deleted in one request.
        "--delete-collection-workers=8",
        # Else watches keep it from ending until it is killed.
        "--shutdown-watch-termination-grace-period=1s",
    )


def another_api_server(site: Site, port: int) -> Process:
    """Return one more on the same etcd, with the same keys and certificate."""
    first = api_server(site)
    return replace(
        first,
        name="another-kube-apiserver",
        argv=(*first.argv, f"--secure-port={port}"),
        log=site.folder / "another-kube-apiserver.log",
        urls=(f"https://127.0.0.1:{port}",),
    )


def controllers(site: Site) -> Process:
    """Return kube-controller-manager, with a ServiceAccount for each controller."""
    return site.process(
        "kube-controller-manager",
        f"--kubeconfig={site.kubeconfig(credentials.CONTROLLERS)}",
        "--bind-address=127.0.0.1",
        f"--secure-port={site.ports['kube-controller-manager']}",
        f"--controllers={','.join(f'{name}-controller' for name in _CONTROLLERS)}",
        "--use-service-account-credentials",
        f"--root-ca-file={site.ca_file}",
        "--leader-elect=false",
        f"--kube-api-qps={_QPS}",
        f"--kube-api-burst={2 * _QPS}",
    )


def scheduler(site: Site) -> Process:
    """Return the stock scheduler."""
    user = site.kubeconfig(credentials.SCHEDULER)
    config = site.folder / "scheduler.config"
    config.write_text(
        json.dumps(
            {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
                "clientConnection": {"kubeconfig": str(user), "qps": _QPS, "burst": 2 * _QPS},
                "leaderElection": {"leaderElect": False},
            }
        )
    )
    return site.process(
        "kube-scheduler",
        f"--config={config}",
        "--bind-address=127.0.0.1",
        f"--secure-port={site.ports['kube-scheduler']}",
    )


def kwok(site: Site) -> Process:
    """Return kwok, in place of kubelets: nodes are ready at once, bound pods run at once."""
    own = {"pod-ready.yaml", "pod-delete.yaml"}
    theirs = (path for path in site.binaries.files(STAGES) if Path(path).name not in own)
    files = (*theirs, *(HERE / name for name in sorted(own)))
    stages = (f"--config={path}" for path in files)
    return site.process(
        "kwok",
        f"--kubeconfig={site.kubeconfig(credentials.NODES)}",
        "--manage-all-nodes=true",
        "--node-lease-duration-seconds=40",
        f"--server-address={site.address('kwok')}",
        *stages,
        scheme="http",
    )
