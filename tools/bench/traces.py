"""Synthetic traces for `linkwise replay`: the same lines for the same seed.

`python -m tools.bench.traces openb 3000` prints pods that share GPUs, `nodes 200` their fleet, and
`philly 3000` jobs of whole GPUs. Sizes and durations are drawn from distributions that resemble the
published traces; they are not taken from them.
"""

import random
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta

OPENB_HEADER = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,"
    "creation_time,deletion_time,scheduled_time\n"
)

_BEGIN = datetime(2017, 10, 1, tzinfo=UTC)


def openb_lines(jobs: int, seed: int = 0) -> Iterator[str]:
    """Yield pods in the format of openb: three quarters ask for one GPU or a part of one."""
    draw, time = random.Random(seed), 0.0  # noqa: S311 (the same trace each time)
    yield OPENB_HEADER
    for i in range(jobs):
        time += draw.expovariate(1 / 10)
        gpus = draw.choices([0, 1, 2, 4, 8], [13, 75, 4, 3, 5])[0]
        is_whole = gpus != 1 or draw.random() < 0.4
        part = draw.choice([220, 340, 460, 500, draw.randrange(50, 1000, 10)])
        milli = 1000 if is_whole else part
        cpu, memory = draw.choice([2000, 4000, 8000, 16000]), draw.choice([8192, 16384, 32768])
        begin, end = int(time), int(time + draw.lognormvariate(7, 1.2))
        amounts = f"{cpu},{memory},{gpus},{milli if gpus else 0}"
        yield f"pod-{i},{amounts},,LS,Running,{begin},{end},{begin}\n"


def node_lines(nodes: int, _seed: int = 0) -> Iterator[str]:
    """Yield nodes in the format of openb, with 8, 8, 4, 2 and 1 GPUs in turn."""
    yield "sn,cpu_milli,memory_mib,gpu,model\n"
    for i in range(nodes):
        yield f"node-{i:04},96000,786432,{(8, 8, 4, 2, 1)[i % 5]},G2\n"


def philly_lines(jobs: int, seed: int = 0) -> Iterator[str]:
    """Yield jobs in the format of Philly: most of one GPU, some of up to 64."""
    draw, time = random.Random(seed), 0.0  # noqa: S311 (the same trace each time)
    yield "timestamp,duration,num_gpus\n"
    for _ in range(jobs):
        time += draw.expovariate(1 / 60)
        gpus = draw.choices([1, 2, 4, 8, 16, 32, 64], [55, 15, 12, 10, 5, 2, 1])[0]
        submit = _BEGIN + timedelta(seconds=int(time))
        yield f"{submit:%Y-%m-%d %H:%M:%S},{draw.lognormvariate(8, 1.5):.1f},{gpus}\n"


TRACES: Mapping[str, Callable[[int, int], Iterator[str]]] = {
    "openb": openb_lines,
    "nodes": node_lines,
    "philly": philly_lines,
}

if __name__ == "__main__":
    name, count, *seeds = sys.argv[1:]
    sys.stdout.writelines(TRACES[name](int(count), int(seeds[0]) if seeds else 0))
