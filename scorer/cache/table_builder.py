"""Build the tables of machines in a thread, so that the event loop never waits for them.

A new class of machines costs up to half a second with 8 GPUs, and several seconds with 16. Tables
of the smallest machines are built directly.
"""

import asyncio
from collections.abc import Callable
from weakref import WeakValueDictionary

from topology.machine import Machine
from topology.table import Table, machine_class, table_of

_MOST_INLINE = 4
"""GPUs of the machines whose tables are built without a thread: they take at most 20 ms."""
_MOST_AWAITED = 8
"""GPUs of the machines whose tables take less than half a second: a new leader waits for them."""


def build_table(machine: Machine) -> Table:
    """Return all tables of a machine; see `Table.prepare` for the cost."""
    table = table_of(machine)
    table.prepare()
    return table


class TableBuilder:
    """Tables of the machines of nodes: those that are built, and those still to build."""

    def __init__(
        self, on_built: Callable[[str], None], build: Callable[[Machine], Table] = build_table
    ) -> None:
        """Start with no tables; `run` builds them.

        Args:
            on_built: Called with the name of each node whose table was built; calls `table` again.
            build: Returns the tables of a machine; runs in a thread.
        """
        self._on_built, self._build = on_built, build
        self._tables: WeakValueDictionary[Machine, Table] = WeakValueDictionary()
        self._missing: dict[str, Machine] = {}
        """By node: the machine whose tables the node waits for."""
        self._changed = asyncio.Condition()
        self._wake = asyncio.Event()

    def table(self, node: str, machine: Machine | None) -> Table | None:
        """Return the tables of a node's machine; None where they are still to build.

        Args:
            node: Its name.
            machine: Its machine now; None: the node has none, or does not exist.
        """
        self._missing.pop(node, None)
        if machine is None:
            return None
        key = machine_class(machine)
        table = self._tables.get(key)
        if table is None and key.n <= _MOST_INLINE:
            table = self._tables[key] = self._build(key)
        if table is None:
            self._missing[node] = key
            self._wake.set()
        return table

    async def run(self) -> None:
        """Build what nodes wait for, small machines first, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._missing:
                machine = min(self._missing.values(), key=lambda machine: machine.n)
                table = await asyncio.to_thread(self._build, machine)
                self._tables[machine] = table
                for node in [name for name, key in self._missing.items() if key == machine]:
                    self._on_built(node)
                async with self._changed:
                    self._changed.notify_all()

    async def small_built(self) -> None:
        """Wait until no node waits for the tables of a machine with at most 8 GPUs."""
        async with self._changed:
            await self._changed.wait_for(
                lambda: all(machine.n > _MOST_AWAITED for machine in self._missing.values())
            )
