"""A client that sends reviews to the webhook as API servers do, each over a connection of its own.

It trusts what `caBundle` says, and every second request the one of some seconds ago: another API
server may not have seen a change yet. It runs as a process of its own, so that nothing else delays
it.
"""

import asyncio
import json
import signal
import ssl
import sys
import time
from base64 import b64decode
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
from controlplane.credentials import ADMIN
from controlplane.manifests import MUTATING, ROOT
from controlplane.plane import ControlPlane
from controlplane.process import Process, free_ports, wait_until

POLL = 0.2
"""Between two reads of the registration [s]."""
_REVIEW = json.dumps(
    {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "1",
            "operation": "CREATE",
            "namespace": "default",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "object": {"metadata": {"name": "a"}, "spec": {"containers": []}},
            "userInfo": {"username": "someone"},
        },
    }
).encode()
_HEAD = (
    "POST /mutate HTTP/1.1\r\nHost: webhook\r\nContent-Type: application/json\r\n"
    f"Content-Length: {len(_REVIEW)}\r\nConnection: close\r\n\r\n"
).encode()


@dataclass
class Settings:
    """Settings of the process."""

    server: str
    """The API server."""
    ca_file: str
    token: str
    port: int
    """Of the webhook."""
    rate: float
    """Reviews each second."""
    lag: float
    """How late the other API server sees a `caBundle` [s]."""
    results: str
    """File for the results, written each second and at the end."""


@dataclass
class Results:
    """What has been sent so far."""

    sent: int = 0
    answered: int = 0
    seconds: float = 0
    bundles: int = 0
    """Different values of `caBundle`."""
    leaves: list[str] = field(default_factory=list)
    """Serial numbers of the certificates that the webhook has shown, in the order of the first."""
    failures: list[str] = field(default_factory=list)
    """The first of them, with the time since the start."""


@dataclass
class Client:
    """Sends reviews until it is over."""

    settings: Settings
    results: Results = field(default_factory=Results)
    is_over: bool = False
    _seen: deque[tuple[float, str]] = field(default_factory=deque)
    """Values of `caBundle` and when each was seen first."""

    async def run(self) -> None:
        """Read the registration, send reviews, write results; return when all are answered."""
        async with asyncio.TaskGroup() as tasks:
            others = [tasks.create_task(self._watch()), tasks.create_task(self._write())]
            while not (self._seen or self.is_over):  # noqa: ASYNC110 - another task appends.
                await asyncio.sleep(POLL)
            async with asyncio.TaskGroup() as reviews:
                await self._send_all(reviews)
            for other in others:
                other.cancel()

    async def _send_all(self, reviews: asyncio.TaskGroup) -> None:
        start = due = time.monotonic()
        for number in count():
            await asyncio.sleep(max(0, due - time.monotonic()))
            if self.is_over:
                return
            # The reviews of a longer stall would be too many connections at once.
            due = max(due, time.monotonic() - 1) + 1 / self.settings.rate
            self.results.seconds = time.monotonic() - start
            reviews.create_task(self._review(number))

    async def _watch(self) -> None:
        context = ssl.create_default_context(cafile=self.settings.ca_file)
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        headers = {"Authorization": f"Bearer {self.settings.token}"}
        url = f"{self.settings.server}{MUTATING}"
        async with aiohttp.ClientSession(headers=headers) as session:
            while True:
                with suppress(aiohttp.ClientError, TimeoutError):
                    async with session.get(url, ssl=context) as answer:
                        self._see((await answer.json())["webhooks"][0]["clientConfig"])
                await asyncio.sleep(POLL)

    def _see(self, config: dict[str, Any]) -> None:
        bundle = b64decode(config.get("caBundle", "")).decode()
        if bundle and (not self._seen or self._seen[-1][1] != bundle):
            self._seen.append((time.monotonic(), bundle))
            self.results.bundles += 1

    def _trusted(self, number: int) -> str:
        if number % 2:
            return self._seen[-1][1]
        late = time.monotonic() - self.settings.lag
        while len(self._seen) > 1 and self._seen[1][0] <= late:
            self._seen.popleft()
        return self._seen[0][1]

    async def _review(self, number: int) -> None:
        self.results.sent += 1
        try:
            async with asyncio.timeout(30):
                await self._send(_context(self._trusted(number)))
            self.results.answered += 1
        except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError) as error:
            if len(self.results.failures) < 20:
                text = f"{self.results.seconds:.1f} s: {type(error).__name__}: {error}"
                self.results.failures.append(text)

    async def _send(self, context: ssl.SSLContext) -> None:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.settings.port, ssl=context, server_hostname="127.0.0.1"
        )
        try:
            serial = writer.get_extra_info("peercert")["serialNumber"]
            if serial not in self.results.leaves:
                self.results.leaves.append(serial)
            writer.write(_HEAD + _REVIEW)
            head = await reader.readuntil(b"\r\n\r\n")
            if b" 200 " not in head.split(b"\r\n")[0]:
                raise ValueError(head.split(b"\r\n")[0].decode())
        finally:
            writer.transport.abort()

    async def _write(self) -> None:
        while True:
            write(self.settings, self.results)
            await asyncio.sleep(1)


@lru_cache(maxsize=8)
def _context(bundle: str) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=bundle)


def write(settings: Settings, results: Results) -> None:
    """Replace the file of the results."""
    file = Path(settings.results)
    part = file.with_suffix(".part")
    part.write_text(json.dumps(asdict(results)))
    part.replace(file)


@dataclass(frozen=True)
class Reviews:
    """The running client."""

    process: Process
    file: Path

    @property
    def results(self) -> Results:
        """What it has sent so far."""
        return Results(**json.loads(self.file.read_text()))


@contextmanager
def run_reviews(plane: ControlPlane, port: int, rate: float, lag: float) -> Iterator[Reviews]:
    """Send reviews to a port while the block runs; afterwards the results are complete."""
    file = plane.site.folder / f"reviews-{free_ports(1)[0]}.json"
    token = plane.tokens[ADMIN]
    settings = Settings(plane.server, str(plane.ca_file), token, port, rate, lag, str(file))
    argv = (sys.executable, "-m", "controlplane.reviews", json.dumps(asdict(settings)))
    env = {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    process = Process("reviews", argv, file.with_suffix(".log"), env=env)
    plane.processes.start(process)
    try:
        wait_until(lambda: Reviews(process, file).results.answered > 0, "a review is answered")
        yield Reviews(process, file)
    finally:
        plane.processes.stop(process)


async def main(settings: Settings) -> None:
    """Send reviews until SIGTERM."""
    client = Client(settings)

    def end() -> None:
        client.is_over = True

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end)
    await client.run()
    write(settings, client.results)


if __name__ == "__main__":
    asyncio.run(main(Settings(**json.loads(sys.argv[1]))))
