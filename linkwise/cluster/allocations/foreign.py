"""Read allocations of other schedulers from pods: annotations of ACK, gpushare and arena.

Sources: gpushare-scheduler-extender `pkg/utils/pod.go` at c0b6141; arena `pkg/apis/types/const.go`
at 0ebde4d.
"""

from collections import Counter
from collections.abc import Mapping

from linkwise.cluster.allocations.gpus import Exact, GPUShare
from linkwise.cluster.allocations.record import RecordError, check_distinct, decode
from linkwise.cluster.keys import (
    ARENA_GPU_GROUP,
    GPUSHARE_ALLOCATION,
    GPUSHARE_CORE,
    MEM_IDX,
    MEM_POD,
)
from linkwise.cluster.requests.amounts import CORE_MAX, MEMORY_MAX
from linkwise.topology.machine import MAX_GPUS


def read_foreign(annotations: Mapping[str, str]) -> Exact:
    """Return the allocation by another scheduler; empty without its annotations.

    Reads ACK's allocation by container, else gpushare's index, else arena's GPU group. They name no
    node: it is the node of the pod.

    Raises:
        RecordError: An annotation is malformed.
    """
    if GPUSHARE_ALLOCATION in annotations:
        gpus = _read_by_container(annotations)
    elif MEM_IDX in annotations:
        gpus = (_read_one(annotations),)
    elif ARENA_GPU_GROUP in annotations:
        items = annotations[ARENA_GPU_GROUP].split(",", MAX_GPUS)
        gpus = tuple(GPUShare(_index(ARENA_GPU_GROUP, item)) for item in items)
        check_distinct(ARENA_GPU_GROUP, gpus)
    else:
        gpus = ()
    return Exact(gpus)


def _read_one(annotations: Mapping[str, str]) -> GPUShare:
    if MEM_POD not in annotations:
        raise RecordError(f"{MEM_POD}: missing beside {MEM_IDX}")
    memory = _number(MEM_POD, annotations[MEM_POD], 1, MEMORY_MAX)
    return GPUShare(_index(MEM_IDX, annotations[MEM_IDX]), mem=memory)


def _read_by_container(annotations: Mapping[str, str]) -> tuple[GPUShare, ...]:
    memory = _sum_by_gpu(annotations, GPUSHARE_ALLOCATION, MEMORY_MAX)
    core = _sum_by_gpu(annotations, GPUSHARE_CORE, CORE_MAX)
    if not memory or not core.keys() <= memory.keys():
        raise RecordError(f"{GPUSHARE_ALLOCATION}: it gives no memory of some GPU")
    return tuple(GPUShare(i, mem=memory[i], core=core.get(i)) for i in sorted(memory))


def _sum_by_gpu(annotations: Mapping[str, str], key: str, most: int) -> Counter[int]:
    table = decode(key, annotations.get(key, "{}"), dict[str, dict[str, int]])
    total: Counter[int] = Counter()
    for amounts in table.values():
        for gpu, amount in amounts.items():
            if amount < 1:
                raise RecordError(f"{key}: GPU {gpu[:20]!r} has the amount {amount}")
            total[_index(key, gpu)] += amount
    if any(amount > most for amount in total.values()):
        raise RecordError(f"{key}: more than {most} of one GPU")
    return total


def _index(key: str, text: str) -> int:
    return _number(key, text, 0, MAX_GPUS - 1)


def _number(key: str, text: str, least: int, most: int) -> int:
    digits = text.strip()
    number = int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 9 else None
    if number is None or not least <= number <= most:
        raise RecordError(f"{key}: {text[:20]!r} is no number from {least} to {most}")
    return number
