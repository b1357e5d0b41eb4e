"""`linkwise topology show --node`: shows the machine of a node of a cluster."""

from linkwise.manifest.value import InputError
from linkwise.topology.table import table_of
from linkwise.views.files.current_cluster import CurrentCluster
from linkwise.views.output.printer import Format, emit, say, sentence
from linkwise.views.render import topology_json, topology_text


def show_machine_of(current: CurrentCluster, name: str, output: Format) -> int:
    """Show the machine of a node, its source, and its unhealthy GPUs; return the exit code.

    Raises:
        InputError: There is no such node, or the links of its GPUs are unknown.
    """
    ledger = current.cluster.ledger.nodes.get(name)
    if ledger is None:
        raise InputError(f"there is no node {name}. See linkwise inspect for those with GPUs.")
    node = ledger.node
    if node.machine is None or not node.machine_known:
        problem = f"the links of the GPUs of {name} are unknown" if node.cards else "it has no GPUs"
        raise InputError(
            f"node {name}: {problem}. Run the agent there, or name its machine in the policy."
        )
    table = table_of(node.machine)
    if output is not Format.TABLE:
        emit(topology_json.node_report(node, node.machine, table), output)
        return 0
    topology_text.show_machine(name, node.machine, table)
    say()
    say("Source:", node.machine_source.words)
    unhealthy = [str(i) for i, card in enumerate(node.cards) if not card.healthy]
    if unhealthy:
        say("Unhealthy:", ", ".join(f"GPU{i}" for i in unhealthy))
    if node.pool and node.pool.missing:
        say("Missing:", node.pool.missing)
    if node.mismatch:
        say("Mismatch:", node.mismatch)
    if note := node.kubelet.numa_note:
        say("Kubelet:", sentence(note))
    return 0
