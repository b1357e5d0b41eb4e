import asyncio
import time
from contextlib import asynccontextmanager

import pytest
from support.servers.lease_api import Client, LeaseAPI
from support.waiting import until

from linkwise.runtime.kube.election import Election
from linkwise.runtime.kube.holder_watch import until_ended

KEY = "address"
HOUR = 3600


class Holder:
    """A process that accepts connections until it ends."""

    def __init__(self):
        self.connections = []

    async def start(self, port=0):
        self.server = await asyncio.start_server(self._accept, "127.0.0.1", port)
        self.port = self.server.sockets[0].getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        return self

    def end(self):
        self.server.close()
        self.drop()

    def drop(self):
        while self.connections:
            self.connections.pop().transport.abort()

    async def _accept(self, _, writer):
        self.connections.append(writer)


@asynccontextmanager
async def watching(address):
    task = asyncio.create_task(until_ended(address, retry=0.01))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait((task,))


async def test_a_holder_ends_when_its_connection_is_closed_and_another_one_is_refused():
    holder = await Holder().start()
    async with watching(holder.address) as task:
        await until(lambda: holder.connections)
        holder.end()
        await until(task.done)


async def test_a_holder_that_closes_a_connection_and_accepts_another_one_has_not_ended():
    holder = await Holder().start()
    async with watching(holder.address) as task:
        for _ in range(3):
            await until(lambda: holder.connections)
            holder.drop()
        await until(lambda: holder.connections)
        assert not task.done()
        holder.end()
        await until(task.done)


async def test_a_holder_that_was_never_reached_is_not_known_to_have_ended():
    holder = await Holder().start()
    holder.end()
    async with watching(holder.address) as task:
        # A refused connection is no proof: the holder may be about to listen.
        await asyncio.sleep(0.1)
        assert not task.done()
        await holder.start(holder.port)
        await until(lambda: holder.connections)
        holder.end()
        await until(task.done)


@pytest.mark.parametrize("address", ["", "host", ":80", "127.0.0.1:", "127.0.0.1:99999999"])
async def test_without_a_valid_address_no_end_is_noticed(address):
    async with watching(address) as task:
        await asyncio.sleep(0.05)
        assert not task.done()


def held_by(name, term, address):
    metadata = {"name": "leader", "annotations": {KEY: address}}
    spec = {"holderIdentity": name, "leaseDurationSeconds": HOUR, "leaseTransitions": term}
    return {"metadata": metadata, "spec": spec}


@asynccontextmanager
async def candidate(api, address="we:1"):
    terms = []

    async def lead(term):
        terms.append(term)
        await asyncio.Event().wait()

    election = Election(
        Client(api), "ns", "leader", "we", address=(KEY, address), clock=time.monotonic
    )
    task = asyncio.create_task(election.run(lead))
    try:
        yield terms
    finally:
        task.cancel()
        await asyncio.wait((task,))


async def test_the_lease_of_a_holder_that_has_ended_is_taken_at_once_with_our_address():
    api, holder = LeaseAPI(), await Holder().start()
    api._store(held_by("other", 6, holder.address))
    async with candidate(api) as terms:
        await until(lambda: holder.connections)
        assert terms == []
        holder.end()
        await until(lambda: terms == [7])
        assert api.record["metadata"]["annotations"] == {KEY: "we:1"}


async def test_the_end_of_the_holder_before_says_nothing_about_its_successor():
    api, before, successor = LeaseAPI(), await Holder().start(), await Holder().start()
    api._store(held_by("before", 6, before.address))
    async with candidate(api) as terms:
        await until(lambda: before.connections)
        api._store(held_by("successor", 7, successor.address))
        await until(lambda: successor.connections)
        before.end()
        await asyncio.sleep(0.1)
        assert terms == []
        successor.end()
        await until(lambda: terms == [8])
