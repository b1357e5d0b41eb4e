"""Build the tables of machines in a thread, because they would block the event loop.

A new class of machines costs up to half a second with 8 GPUs, and several seconds with 16. The
event loop waits only for machines with at most 4 GPUs, whose tables are built directly.
"""

import asyncio
from collections.abc import Callable
from weakref import WeakValueDictionary

import structlog

from topology.machine import Machine
from topology.table import Table, machine_class, table_of

_MAX_GPUS_INLINE = 4
"""GPUs of the machines whose tables are built without a thread: they take at most 20 ms."""
_MAX_GPUS_AWAITED = 8
"""GPUs of the machines whose tables take less than half a second: a new leader waits for them."""
_BATCH = 50
"""Nodes that are updated before other tasks run."""
_RETRY, _RETRY_MAX = 1.0, 600.0
"""The first and the longest delay before a failed build is tried again [s]."""

_log = structlog.get_logger()


def build_table(machine: Machine) -> Table:
    """Return all tables of a machine; see `Table.prepare` for the cost."""
    table = table_of(machine)
    table.prepare()
    return table


class TableBuilder:
    """Tables of the machines of nodes: those that are built, and those still to build."""

    def __init__(
        self,
        on_built: Callable[[str, Table], None],
        build: Callable[[Machine], Table] = build_table,
    ) -> None:
        """Start with no tables; `run` builds them.

        Args:
            on_built: Called with each node whose table was built, and the table.
            build: Returns the tables of a machine; runs in a thread.
        """
        self._on_built, self._build = on_built, build
        self._tables: WeakValueDictionary[Machine, Table] = WeakValueDictionary()
        self._missing: dict[Machine, set[str]] = {}
        """By class of machines: the nodes that wait for its tables."""
        self._delays: dict[Machine, float] = {}
        """The last delay of each class whose build failed [s]."""
        self._backing_off: set[Machine] = set()
        """Classes whose delay has not ended."""
        self._small_built = asyncio.Event()
        self._small_built.set()
        self._wake = asyncio.Event()

    def table(self, node: str, machine: Machine | None) -> Table | None:
        """Return the tables of a node's machine; None where they are still to build.

        Args:
            node: Its name.
            machine: Its machine now; None: the node has none, or does not exist.
        """
        for nodes in self._missing.values():
            nodes.discard(node)
        table = None
        if machine is not None:
            key = machine_class(machine)
            table = self._tables.get(key) or self._build_inline(key)
            if table is None:
                self._missing.setdefault(key, set()).add(node)
                self._wake.set()
        self._update_small_built()
        return table

    async def run(self) -> None:
        """Build what nodes wait for, small machines first, until cancelled.

        A class whose build fails backs off; its nodes stay without tables until then.
        """
        while True:
            await self._wake.wait()
            self._wake.clear()
            while (machine := self._next()) is not None:
                try:
                    table = await asyncio.to_thread(self._build, machine)
                except Exception as error:  # noqa: BLE001 - one machine must not end the leader.
                    self._back_off(machine, error)
                else:
                    await self._publish(machine, table)

    @property
    def small_missing(self) -> int:
        """Nodes that wait for the tables of a machine with at most 8 GPUs that never failed."""
        return sum(
            len(nodes)
            for machine, nodes in self._missing.items()
            if machine.n <= _MAX_GPUS_AWAITED and machine not in self._delays
        )

    async def small_built(self) -> None:
        """Wait until `small_missing` is 0."""
        await self._small_built.wait()

    def _next(self) -> Machine | None:
        """Return the smallest machine that may be built now; None: there is none."""
        self._missing = {machine: nodes for machine, nodes in self._missing.items() if nodes}
        ready = (machine for machine in self._missing if machine not in self._backing_off)
        return min(ready, key=lambda machine: machine.n, default=None)

    def _build_inline(self, machine: Machine) -> Table | None:
        """Return the tables of one of the smallest machines; None: `run` must build them."""
        if machine.n > _MAX_GPUS_INLINE or machine in self._delays:
            return None
        try:
            table = self._tables[machine] = self._build(machine)
        except Exception as error:  # noqa: BLE001 - one machine must not end the leader.
            self._back_off(machine, error)
            return None
        return table

    async def _publish(self, machine: Machine, table: Table) -> None:
        self._tables[machine] = table
        self._delays.pop(machine, None)
        nodes = self._missing[machine]
        while nodes:
            for _ in range(min(_BATCH, len(nodes))):
                self._on_built(nodes.pop(), table)
            self._update_small_built()
            await asyncio.sleep(0)

    def _back_off(self, machine: Machine, error: Exception) -> None:
        delay = min(2 * self._delays.get(machine, _RETRY / 2), _RETRY_MAX)
        self._delays[machine] = delay
        self._backing_off.add(machine)
        self._update_small_built()
        _log.error("Could not build tables", gpus=machine.n, retry_after=delay, exc_info=error)
        asyncio.get_running_loop().call_later(delay, self._end_backoff, machine)

    def _end_backoff(self, machine: Machine) -> None:
        self._backing_off.discard(machine)
        self._wake.set()

    def _update_small_built(self) -> None:
        if self.small_missing:
            self._small_built.clear()
        else:
            self._small_built.set()
