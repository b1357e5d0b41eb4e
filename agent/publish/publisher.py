"""Keep the topology ConfigMap and the labels of this node as they should be."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from zlib import crc32

import structlog

from agent.publish.node_labels import publish_labels, publish_mode_in_use, read_node_labels
from agent.publish.topology import publish_topology, topology_config_map
from linkwise.cluster.nodes.topology_configmap import PublishedTopology
from linkwise.runtime.kube.client import Kube, KubeError
from linkwise.runtime.process.backoff import Backoff
from linkwise.runtime.process.clock import wait_at_most

_log = structlog.get_logger()
_KEY = "publish"


@dataclass(frozen=True, slots=True)
class Publication:
    """The state of a node to publish."""

    topology: PublishedTopology | None = None
    """With a machine; None: the GPUs cannot be read, and the last topology stays."""
    bandwidth: Sequence[Sequence[float]] = ()
    """Bandwidth of each pair [GB/s], shape (n, n)."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of the node."""
    node_uid: str = ""
    """UID of the Node: one that was registered again has neither labels nor ConfigMap."""
    mode_in_use: str | None = None
    """The mode whose devices containers have, or that there is none; None: not known yet."""


class Publisher:
    """Publishes the state of one node: on each change, and again on a slow interval."""

    def __init__(
        self, kube: Kube, node: str, *, interval: float = 600, max_backoff: float = 30
    ) -> None:
        """Publish nothing until `run`.

        Args:
            kube: The API server.
            node: Name of this node.
            interval: Between two checks of what is stored [s]. It is stretched or shortened by up
                to 20 %, by the name of the node, so that nodes do not check at the same time.
            max_backoff: Longest delay after a failure [s].
        """
        self._kube, self._node = kube, node
        self._interval = interval * (0.8 + 0.4 * crc32(node.encode()) / 2**32)
        self._changed = asyncio.Event()
        self._backoff = Backoff(1, max_backoff, self._changed.set)
        self._publication: Publication | None = None
        self.error: str | None = None
        """Why the last attempt failed; None if it succeeded, or if there was none."""

    def set(self, publication: Publication) -> None:
        """Publish a new state soon; an equal one changes nothing."""
        if publication != self._publication:
            self._publication = publication
            self._changed.set()

    async def run(self) -> None:
        """Publish until cancelled."""
        try:
            while True:
                self._changed.clear()
                if self._publication is not None:
                    await self._publish(self._publication)
                await wait_at_most(self._interval, self._changed)
        finally:
            self._backoff.reset(_KEY)

    async def _publish(self, publication: Publication) -> None:
        try:
            node = await read_node_labels(self._kube, self._node)
            if (mode := publication.mode_in_use) and await publish_mode_in_use(
                self._kube, node, mode
            ):
                _log.info("Mode in use published", mode=mode)
            if topology := publication.topology:
                desired = topology_config_map(
                    self._node, node.metadata.uid, topology, publication.bandwidth
                )
                if await publish_topology(self._kube, desired):
                    _log.info("Topology published", unhealthy=sorted(topology.unhealthy))
            if await publish_labels(self._kube, node, publication.labels):
                _log.info("Node labels published")
        except KubeError as error:
            if str(error) != self.error:
                _log.warning("Could not publish topology", err=str(error))
            self.error = str(error)
            self._backoff.start(_KEY, self.error)
        else:
            self.error = None
            self._backoff.reset(_KEY)
