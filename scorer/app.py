"""Inspection over HTTP, for whoever reaches the process's loopback: who has which GPU, and why not.

Only the leader knows. Nothing is asked and nothing is written; what is answered is what the next
decision stands on.
"""

import asyncio
from collections.abc import Callable
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct

from runtime.exchange import Answer, Call, Route, busy, refusal
from scorer.leader import Leader, Tenure
from scorer.view import view_gangs, view_nodes


class Inspection:
    """Answers people."""

    def __init__(self, leader: Leader) -> None:
        self._leader = leader

    def routes(self) -> list[Route]:
        """Return what is served."""
        return [Route("GET", "/v1/nodes", self.nodes), Route("GET", "/v1/gangs", self.gangs)]

    async def nodes(self, call: Call) -> Answer:
        """Answer who has which GPU: of one node with `?name=`."""
        return await self._answer(call, "name", _nodes)

    async def gangs(self, call: Call) -> Answer:
        """Answer how gangs stand, and what waits: of one namespace with `?namespace=`."""
        return await self._answer(call, "namespace", _gangs)

    async def _answer(
        self, call: Call, filtered: str, view: Callable[[Tenure, str | None], Callable[[], Struct]]
    ) -> Answer:
        asked = dict(parse_qsl(call.query, keep_blank_values=True))
        if asked.keys() - {filtered}:
            return refusal(400, f"of a query, only {filtered}=<name> is read")
        tenure = self._leader.tenure
        if tenure is None:
            return refusal(
                503, "another replica leads: the holder of Lease linkwise-system/linkwise-scorer"
            )
        if why := tenure.watches.missing():
            return busy(why)
        # Taken at this moment; put together in a thread, since the planner must not be held up.
        made = view(tenure, asked.get(filtered))
        return Answer(await asyncio.to_thread(lambda: msgspec.json.encode(made())))


def _nodes(tenure: Tenure, name: str | None) -> Callable[[], Struct]:
    snapshot = tenure.watches.state.snapshot()
    return lambda: view_nodes(snapshot, tenure.term, name)


def _gangs(tenure: Tenure, namespace: str | None) -> Callable[[], Struct]:
    gangs, waiting = tuple(tenure.watches.gangs.values()), tuple(tenure.planner.waiting())
    return lambda: view_gangs(gangs, waiting, tenure.term, namespace)
