"""Lead by the scorer's Lease, and write the term on a pod repeatedly.

    python -m controlplane.lease_holder IDENTITY POD DURATION DEADLINE RETRY

It writes once more after it has lost the Lease, as does a process that was paused between the
check of the Lease and the write. It prints the term and the error of each write in a line of
JSON.
"""

import asyncio
import json
import os
import sys
from functools import partial
from pathlib import Path

from linkwise.cluster import keys
from linkwise.runtime.kube.client import ApiError, Kube, KubeError
from linkwise.runtime.kube.election import Election
from linkwise.runtime.kube.lease import LeaseTimings
from linkwise.runtime.process import lifecycle

NAMESPACE, NAME = keys.POLICY_NAMESPACE, "linkwise-scorer"
PAUSE = 0.1
"""Between two writes [s]."""


async def hold(stop: asyncio.Event) -> None:
    """Lead whenever possible, until the first signal."""
    identity, pod, duration, deadline, retry = sys.argv[1:]
    timing = LeaseTimings(int(duration), float(deadline), float(retry))
    async with Kube(
        os.environ["LINKWISE_API_SERVER"],
        token_file=Path(os.environ["LINKWISE_API_TOKEN_FILE"]),
        ca_file=Path(os.environ["LINKWISE_API_CA_FILE"]),
    ) as kube:
        election = Election(kube, NAMESPACE, NAME, identity, timing)
        leading = asyncio.create_task(election.run(partial(write, kube, pod)))
        ended = asyncio.create_task(stop.wait())
        await asyncio.wait((leading, ended), return_when=asyncio.FIRST_COMPLETED)
        leading.cancel()
        await asyncio.wait((leading,))


async def write(kube: Kube, pod: str, term: int) -> None:
    """Write until cancelled, and once more then: a write decided before the cancellation."""
    try:
        while True:
            await write_once(kube, pod, term)
            await asyncio.sleep(PAUSE)
    finally:
        await write_once(kube, pod, term)


async def write_once(kube: Kube, pod: str, term: int) -> None:
    """Write once, and print the outcome."""
    given = {"node": "none", "gpus": [], "plan": os.urandom(4).hex()}
    record = {keys.ALLOCATION: json.dumps(given), keys.TERM: str(term)}
    refused = ""
    try:
        await kube.patch(pod, {"metadata": {"annotations": record}}, dict, kind="merge")
    except KubeError as error:
        refused = error.message if isinstance(error, ApiError) else "no answer"
    sys.stdout.write(f"{json.dumps({'term': term, 'refused': refused})}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    lifecycle.run(hold)
