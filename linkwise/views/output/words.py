"""Words for numbers, amounts and conditions that several outputs show. Pure."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from linkwise.cluster.allocations.gpus import Counted, Exact, GPUs, GPUShare

if TYPE_CHECKING:
    from linkwise.cluster.nodes.node import Card


def plural(noun: str, number: int) -> str:
    """Return a noun in the form for a number.

    >>> plural("pod", 1), plural("pod", 0)
    ('pod', 'pods')
    """
    return noun if number == 1 else f"{noun}s"


def amount_text(shares: Iterable[GPUShare]) -> str:
    """Return the sum of shares as text; empty for whole GPUs and replicas.

    >>> amount_text([GPUShare(0, mem=3, core=30), GPUShare(1, mem=3)])
    '6 GiB, 30 %'
    """
    listed = list(shares)
    amounts = (
        (sum(share.mem or 0 for share in listed), "GiB"),
        (sum(share.core or 0 for share in listed), "%"),
    )
    return ", ".join(f"{amount} {unit}" for amount, unit in amounts if amount)


def gpus_text(gpus: GPUs) -> str:
    """Return the GPUs of a pod on its node, or their number if NVIDIA's plugin chooses them.

    >>> gpus_text(Exact((GPUShare(3), GPUShare(0)))), gpus_text(Exact())
    ('0 3', '')
    >>> gpus_text(Counted("nvidia.com/gpu", 2))
    "2, chosen by NVIDIA's plugin"
    """
    match gpus:
        case Counted(number=number):
            return f"{number}, chosen by NVIDIA's plugin"
        case Exact():
            return " ".join(map(str, gpus.indices))


def card_problems(card: "Card", *, is_held: bool) -> list[str]:
    """Return the conditions that keep pods off a GPU, in a few words each.

    Args:
        card: The GPU.
        is_held: A pod of Linkwise has it, so that a claim may be that of the pod.
    """
    claimed = card.claimed and not is_held
    words = {
        "unhealthy": not card.healthy,
        "cordoned": card.cordoned,
        "held by a claim": claimed,
    }
    return [word for word, applies in words.items() if applies]
