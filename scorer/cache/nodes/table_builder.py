"""Build the tables of machines in a thread, because they would block the event loop.

A new class of machines costs up to half a second with 8 GPUs, and several seconds with 16. The
event loop waits only for machines with at most 4 GPUs, whose tables are built directly. The tables
of all nodes have a limit in bytes, because the agent of a node can publish any machine.
"""

import asyncio
from collections.abc import Callable

import structlog

from linkwise.runtime.process.work_queue import Retry, WorkQueue
from linkwise.topology.machine import Machine
from linkwise.topology.table import Table, machine_class, table_bytes, table_of

TABLES_MAX = 256 << 20
"""Limit of the tables of all nodes [bytes]: those of 10 different machines with 16 GPUs."""
_MAX_GPUS_INLINE = 4
"""GPUs of the machines whose tables are built without a thread: they take at most 20 ms."""
_MAX_GPUS_AWAITED = 8
"""GPUs of the machines whose tables take less than half a second: a new leader waits for them."""
_BATCH = 50
"""Nodes that are updated before other tasks run."""
_RETRY = Retry(1.0, 600.0)
"""When a failed build is tried again."""

_log = structlog.get_logger()


def build_table(machine: Machine) -> Table:
    """Return all tables of a machine; see `Table.prepare` for the cost."""
    table = table_of(machine)
    table.prepare()
    return table


class _MemoryLimitError(Exception):
    """There is no memory for the tables of another machine."""


class TableBuilder:
    """Tables of the machines of nodes: those that are built, and those still to build."""

    def __init__(
        self,
        on_built: Callable[[str, Table], None],
        on_failed: Callable[[str], None],
        build: Callable[[Machine], Table] = build_table,
    ) -> None:
        """Start with no tables; `run` builds them.

        Args:
            on_built: Called with each node whose table was built, and the table.
            on_failed: Called with each node whose table could not be built; see `refusal`.
            build: Returns the tables of a machine; runs in a thread.
        """
        self._on_built, self._on_failed, self._build = on_built, on_failed, build
        self._classes: dict[str, Machine] = {}
        """The class of the machine of each node."""
        self._nodes: dict[Machine, set[str]] = {}
        """By class of machines: its nodes."""
        self._tables: dict[Machine, Table] = {}
        self._missing: dict[Machine, set[str]] = {}
        """By class of machines: the nodes that wait for its tables."""
        self._refusals: dict[Machine, str] = {}
        """Why the last build of a class failed."""
        self._small_built = asyncio.Event()
        self._small_built.set()
        self._queue = WorkQueue(self._process, retry=_RETRY, on_error=self._failed)

    def table(self, node: str, machine: Machine | None) -> Table | None:
        """Return the tables of a node's machine; None where they are still to build.

        Args:
            node: Its name.
            machine: Its machine now; None: the node has none, or does not exist.
        """
        key = machine_class(machine) if machine else None
        before = self._classes.pop(node, None)
        if before is not None and before != key:
            self._remove(node, before)
        table = None
        if key is not None:
            self._classes[node] = key
            self._nodes.setdefault(key, set()).add(node)
            table = self._tables.get(key) or self._build_inline(key)
            if table is None:
                self._missing.setdefault(key, set()).add(node)
                self._queue.add(key, rank=key.n)
        self._update_small_built()
        return table

    def refusal(self, node: str) -> str | None:
        """Return why the last attempt to build the tables of a node failed; None: it did not."""
        machine = self._classes.get(node)
        return self._refusals.get(machine) if machine else None

    async def run(self) -> None:
        """Build what nodes wait for, small machines first, until cancelled.

        A class whose build fails backs off; its nodes stay without tables until then.
        """
        await self._queue.run()

    @property
    def small_missing(self) -> int:
        """Nodes that wait for the tables of a machine with at most 8 GPUs that never failed."""
        return sum(
            len(nodes)
            for machine, nodes in self._missing.items()
            if machine.n <= _MAX_GPUS_AWAITED and machine not in self._refusals
        )

    async def small_built(self) -> None:
        """Wait until `small_missing` is 0."""
        await self._small_built.wait()

    async def _process(self, machine: Machine) -> None:
        if self._missing.get(machine):
            self._check_memory(machine)
            table = await asyncio.to_thread(self._build, machine)
            await self._publish(machine, table)

    def _build_inline(self, machine: Machine) -> Table | None:
        """Return the tables of one of the smallest machines; None: `run` must build them."""
        if machine.n > _MAX_GPUS_INLINE or machine in self._refusals:
            return None
        try:
            self._check_memory(machine)
            table = self._tables[machine] = self._build(machine)
        except Exception:  # noqa: BLE001 - `run` tries it again, and reports why it fails.
            return None
        return table

    def _remove(self, node: str, machine: Machine) -> None:
        """Remove a node from a class, and the class with its last node."""
        self._nodes[machine].discard(node)
        self._missing.get(machine, set()).discard(node)
        if not self._nodes[machine]:
            del self._nodes[machine]
            for by_class in (self._tables, self._missing, self._refusals):
                by_class.pop(machine, None)
            self._queue.discard(machine)

    def _check_memory(self, machine: Machine) -> None:
        used = sum(table_bytes(known.n) for known in self._tables)
        if used + table_bytes(machine.n) > TABLES_MAX:
            raise _MemoryLimitError(
                f"the tables of all machines would exceed {TABLES_MAX >> 20} MiB: too many nodes "
                "publish links that differ from those of all other nodes"
            )

    async def _publish(self, machine: Machine, table: Table) -> None:
        self._refusals.pop(machine, None)
        if machine in self._nodes:
            self._tables[machine] = table
        # Not a copy: a node that is removed meanwhile must not get this table.
        nodes = self._missing.get(machine, set())
        while nodes:
            for _ in range(min(_BATCH, len(nodes))):
                self._on_built(nodes.pop(), table)
            self._update_small_built()
            await asyncio.sleep(0)

    def _failed(self, machine: Machine, error: Exception, delay: float | None) -> None:
        is_full = isinstance(error, _MemoryLimitError)
        reason = str(error) if is_full else "the tables of its GPU links could not be computed"
        _log.error("Could not build tables", gpus=machine.n, retry_after=delay, exc_info=error)
        if machine in self._nodes:
            self._refusals[machine] = reason
        self._update_small_built()
        for node in self._missing.get(machine, ()):
            asyncio.get_running_loop().call_soon(self._on_failed, node)

    def _update_small_built(self) -> None:
        if self.small_missing:
            self._small_built.clear()
        else:
            self._small_built.set()
