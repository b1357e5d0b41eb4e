"""A hostile tenant does not harm other tenants: gangs are placed in time during each attack.

At the end a table shows the memory and event loop lag of scorer and webhook for each attack.
`make soak` lets each attack last longer.
"""

import json
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from signal import SIGKILL
from urllib.parse import urlsplit

import pytest
from controlplane import attacks
from controlplane.attacks import a_tenant, hostile_config_map, hostile_dry_run
from controlplane.history import History
from controlplane.nodes import NODES, add_nodes, read_nodes, remove_nodes
from controlplane.other_tenant import OtherTenantGangs
from controlplane.pods import Pods, variables
from controlplane.process import answers, wait_for, wait_until
from controlplane.process_limits import MIB, Limited, granted
from controlplane.scorer import LEASE
from controlplane.soak import long, often

from linkwise.cluster import container_variables

IN_TIME = 5
"""Longest time from the creation of a gang to its last binding, during an attack [s]."""
GANGS = often(3, 20)
"""Of the honest tenant, during each attack."""
LATE = often(GANGS - 1, 0)
"""Of them at most are late or in part for so long, since the machine may stand still meanwhile."""
GPUS = 8
ROOM = 128 * MIB
"""A process may grow by so much, for bodies in flight and what is read of them [bytes]. With more
growth, a few more of the same requests would reach its limit."""
FILE = Path(__file__).with_name("tenant.json")
ATTACKS = {
    "nothing": attacks.nothing,
    "1 a name that deposes": attacks.a_name_that_deposes,
    "2 unreadable pods": attacks.unreadable_pods,
    "3 a policy of aliases": hostile_config_map(True, attacks.aliases),
    "3 profiles of digits and quotes": hostile_config_map(False, attacks.digits_and_quotes),
    "3 a policy of many keys": hostile_config_map(True, attacks.many_keys),
    "3 many profiles": hostile_config_map(False, attacks.many_selectors),
    "4 pods that skip judgement": attacks.pods_that_skip_judgement,
    "5 host ports": attacks.host_ports,
    "6 an aged unit": attacks.an_aged_unit,
    "7 large gated pods": attacks.large_gated_pods,
    "8 a dry run of aliases": hostile_dry_run(attacks.pod_of_aliases),
    "8 a dry run of many documents": hostile_dry_run(attacks.many_documents),
    "9 a forged environment": attacks.forged_environment,
    "10 a gang that stays in part": attacks.a_gang_that_stays_in_part,
    "11 forged owners": attacks.forged_owners,
    "12 half-sent bodies": attacks.half_sent_bodies,
    "13 names like ours": attacks.names_like_ours,
    "14 unread answers": attacks.unread_answers,
    "15 machines that change": attacks.machines_that_change,
    "16 a flood of metrics": attacks.flood_of_metrics,
}
SOAKED = {"11 forged owners"}
"""Attacks in a soak only: `test_gang_size` and `test_status_reporter` prove their parts."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Scorer and webhook at work, on nodes of eight GPUs."""

    webhook: object
    scorer: object
    limited: dict[str, Limited]

    @property
    def api(self):
        return self.webhook.plane.api

    @property
    def term(self):
        return self.api.get(LEASE)["spec"].get("leaseTransitions", 0)

    def unaccounted(self):
        """Return why nothing is placed on nodes of others, by their names."""
        found = wait_for(lambda: self.scorer.look("/v1/nodes")["nodes"], "the scorer answers", 30)
        reasons = {one["name"]: one["unaccounted"] for one in found if one["name"] in attacks.NODES}
        return {name: reason for name, reason in reasons.items() if reason}

    def revive(self):
        """Start again what ended, or answers no probe any more, as a kubelet does."""
        for one, works in (
            (self.webhook, lambda: self.webhook.ready),
            (self.scorer, lambda: self.scorer.leads),
        ):
            process, processes = one.process, self.webhook.plane.processes
            if not (process.runs and answers(f"{one.probes}/healthz")):
                process.signal(SIGKILL)
                processes.stop(process)
                processes.start(process)
            process.wait_ready(works)


@pytest.fixture(scope="module")
def cluster(placing, webhook):
    made = read_nodes(
        [
            {"name": "gpu", "count": len(attacks.NODES), "machine": "dgx1-v100"}
            | {"mode": "topology", "cpu": 96, "memory": "768Gi"},
            {"name": attacks.HOSTILE_NODE, "machine": "dgx2", "mode": "topology"},
        ]
    )
    add_nodes(webhook.plane.api, made)
    cordoned = {"spec": {"unschedulable": True}}
    webhook.plane.api.patch(f"{NODES}/{attacks.HOSTILE_NODE}", cordoned)
    running = {"scorer": placing, "webhook": webhook}
    with ExitStack() as stack:
        limited = {
            name: stack.enter_context(Limited(one.process, one.probes, granted(name)))
            for name, one in running.items()
        }
        yield Cluster(webhook, placing, limited)
    remove_nodes(webhook.plane.api, made)


@pytest.fixture(scope="module")
def honest(cluster):
    made = cluster.api.create("/api/v1/namespaces", {"metadata": {"generateName": "honest-"}})
    name = made["metadata"]["name"]
    accounts = f"/api/v1/namespaces/{name}/serviceaccounts"
    wait_until(lambda: bool(cluster.api.get(accounts)["items"]), f"{name} has a ServiceAccount")
    yield Pods(cluster.api, name)
    cluster.api.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture
def tenant(cluster, namespace, policy):
    cluster.revive()
    probes = tuple(urlsplit(one.probes).port for one in (cluster.webhook, cluster.scorer))
    yield a_tenant(cluster.webhook, namespace, policy, probes)
    own = Pods(cluster.api, namespace)
    own.clear()


@pytest.fixture(scope="module")
def table(request):
    """What was measured, by attack; shown and written at the end."""
    rows = {}
    yield rows
    FILE.write_text(json.dumps(rows, indent=1) + "\n")
    # A process of pytest-xdist has no terminal; the file has the same.
    terminal = request.config.pluginmanager.get_plugin("terminalreporter")
    say = terminal.write_line if terminal else lambda _line: None
    say("")
    say(LINE.format("attack", "gang [s]", *("memory [MiB]", "most", "lag [s]") * 2, "harm"))
    for name, row in rows.items():
        cells = (*shown(row["scorer"]), *shown(row["webhook"]))
        say(LINE.format(name, f"{row['gang']:.1f}", *cells, ", ".join(row["harm"])))


LINE = "{:31} {:>8} | scorer {:>12} {:>5} {:>7} | webhook {:>12} {:>5} {:>7} | {}"


def shown(vitals):
    lag = "silent" if vitals["lag"] is None else f"{vitals['lag']:g}"
    return f"{vitals['before'] // MIB} to {vitals['after'] // MIB}", vitals["peak"] // MIB, lag


def forged(tenant):
    """Return the pods that show a container more GPUs, or more of one, than it asks for."""
    return [
        name
        for name, pod in tenant.pods.all().items()
        if variables(pod).get(container_variables.ENV_VISIBLE_DEVICES) == "all"
        or variables(pod).get(container_variables.ENV_CGPU_OFF) == "true"
    ]


@pytest.mark.parametrize(
    "attack",
    [
        pytest.param(attack, id=name, marks=[long] if name in SOAKED else [])
        for name, attack in ATTACKS.items()
    ],
)
def test_a_tenant_hurts_only_itself(request, cluster, honest, tenant, table, attack):
    term, name = cluster.term, request.node.callspec.id
    for one in cluster.limited.values():
        one.begin()

    with History(cluster.api) as history:
        with OtherTenantGangs(honest) as gangs, attack(tenant):
            gangs.more(GANGS)
        vitals = {process: one.end() for process, one in cluster.limited.items()}
        history.catch_up()
    harm = {
        "GPUs have two holders": history.held_twice() + history.overbooked(GPUS),
        "gangs are late": [round(one, 1) for one in gangs.waited if one > IN_TIME][LATE:],
        "gangs stay in part": [
            gang for gang, seconds in history.partly_bound().items() if seconds > IN_TIME
        ][LATE:],
        "memory is above its limit": [n for n, one in vitals.items() if one.peak > one.limit],
        "memory grows": [n for n, one in vitals.items() if one.peak > one.before + ROOM],
        "connections of others end": tenant.dropped,
        "machines that change are used": tenant.used,
        "terms begin": list(range(term, cluster.term)),
        "nodes are unaccounted": cluster.unaccounted(),
        "pods see what others have": forged(tenant),
    }
    harm = {what: which for what, which in harm.items() if which}
    table[name] = {
        "gang": max(gangs.waited),
        **{process: asdict(one) for process, one in vitals.items()},
        "harm": list(harm),
    }
    assert harm == {}
