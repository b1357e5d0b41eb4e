"""Slow reviews: short descriptions of large pods, and the work that admission does for one.

Work is counted in executed lines of Python, with empty caches. Unlike time, it is the same in each
run. The decoder, which is not in Python, is bounded by the commas of a body and the digits of a
number.
"""

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

from fuzz.mutate import Mutator
from support.admission import review_response
from support.builders import a_node, an_exact_node

from linkwise.cluster.nodes.node_capacity import capacity_of
from linkwise.policy.document import parse_policy
from linkwise.policy.profile import parse_profiles
from linkwise.policy.snapshot import PolicySnapshot
from webhook.review import API_VERSION, KIND

MAX_WORK = 1_000_000
"""Lines for one review, which take at most 100 ms."""
MAX_ANSWER = 3 << 19
"""Bytes of one answer; an API server reads at most 3 MiB."""
_MAX_VALUES = 60_000
"""Values of one pod; a larger description is no input."""
_KEPT = 12
"""Slowest inputs from which a search goes on."""
_CAPACITY = capacity_of(
    [
        *(an_exact_node(f"n{i}") for i in range(1000)),
        *(a_node(f"c{i}", machine=None, resources={}) for i in range(1000)),
    ],
    claims_gpus=8,
)
_POLICIES = tuple(
    PolicySnapshot(
        parse_policy(f"sharing: {{computeByMps: true}}\nvisibleDevices: {variables}\n"),
        parse_profiles(
            json.dumps(
                [
                    {
                        "name": f"p{i}",
                        "objectSelector": {"matchLabels": {"a": str(i)}},
                        "effect": {"labels": {f"b{i}": "c"}},
                    }
                    for i in range(50)
                ]
            )
        ),
    )
    for variables in ("replace", "deny")
)
_TIMES = re.compile(r"#(\d{1,5})")
_NUMBER = re.compile(r"(?<=#)\d{1,5}")


class TooLargeError(ValueError):
    """A description stands for more values than a body may have."""


def review_is_bounded(data: bytes) -> None:
    """Review the pod of a description, and check the work and the size of the answer."""
    try:
        body = body_of(data)
    except ValueError:
        return
    for policy in _POLICIES:
        lines, answer = work(body, policy)
        assert lines <= MAX_WORK, f"{lines} lines"
        assert len(answer) <= MAX_ANSWER, f"an answer of {len(answer)} bytes"


def body_of(data: bytes) -> bytes:
    """Return the review of the pod that a description stands for.

    A list that begins with "#N" has N of its other items, and a key that ends with "#N" stands for
    N keys. A "#" in their texts is replaced by the number of each.

    Raises:
        ValueError: It is no description, or stands for too much.
    """
    try:
        pod = _Expansion().value(json.loads(data), "")
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    request = {
        "uid": "u",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "operation": "CREATE",
        "namespace": "default",
        "object": pod,
    }
    review = {"apiVersion": API_VERSION, "kind": KIND, "request": request}
    return json.dumps(review).encode(errors="replace")


def work(body: bytes, policy: PolicySnapshot) -> tuple[int, bytes]:
    """Return how many lines a review executes with empty caches, and its answer."""
    _clear_caches()
    lines = 0

    def trace(_frame: FrameType, _event: str, _argument: object) -> Callable[..., Any]:
        nonlocal lines
        lines += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        answer = review_response(
            body, namespaces={"default": {}}, policy=policy, capacity=_CAPACITY
        )
    finally:
        sys.settrace(before)
    return lines, answer


def search(corpus: Path, found: Path, inputs: Iterator[int]) -> tuple[int, bytes]:
    """Search for slow inputs, starting from a corpus, and keep the slowest one.

    Args:
        corpus: Folder of the first inputs.
        found: Folder for the slowest input, if it is not of the corpus.
        inputs: Seeds of the random numbers, one for each new input.

    Returns:
        The work of the slowest input, and the input.
    """
    seeds = [path.read_bytes() for path in sorted(corpus.iterdir())]
    ranked = sorted(((_total(data), data) for data in seeds), reverse=True)
    mutate = Mutator(seeds, lambda data, _most: data)
    for seed in inputs:
        random = Random(seed)  # noqa: S311 - inputs of tests.
        _, parent = random.choice(ranked[:_KEPT])
        data = _with_other_number(parent, random)
        if random.random() < 0.5:
            data = mutate(data, len(parent) + 4096, seed)
        cost = _total(data)
        if cost > ranked[min(_KEPT, len(ranked)) - 1][0]:
            ranked = sorted({*ranked, (cost, data)}, reverse=True)[: 4 * _KEPT]
    slowest = ranked[0]
    if slowest[1] not in seeds:
        found.mkdir(parents=True, exist_ok=True)
        (found / "slowest").write_bytes(slowest[1])
    return slowest


def _total(data: bytes) -> int:
    try:
        body = body_of(data)
    except ValueError:
        return 0
    return max(work(body, policy)[0] for policy in _POLICIES)


def _with_other_number(data: bytes, random: Random) -> bytes:
    """Return a description in which one number of repetitions has changed."""
    text = data.decode(errors="replace")
    numbers = list(_NUMBER.finditer(text))
    if not numbers:
        return data
    place = random.choice(numbers)
    number = int(place[0])
    other = random.choice((number * 2, number // 2, number + 1, max(0, number - 1), 64, 256, 1024))
    return f"{text[: place.start()]}{min(other, 99_999)}{text[place.end() :]}".encode()


CACHED = ("linkwise.admission.", "linkwise.cluster.", "linkwise.policy.", "webhook.")
"""Modules whose caches would hide how long an input takes."""


def _clear_caches() -> None:
    for name, module in list(sys.modules.items()):
        if name.startswith(CACHED):
            for value in vars(module).values():
                if hasattr(value, "cache_clear"):
                    value.cache_clear()


class _Expansion:
    """The expansion of one description, up to a number of values."""

    def __init__(self) -> None:
        self._values = 0

    def value(self, value: Any, number: str) -> Any:
        self._values += 1
        if self._values > _MAX_VALUES:
            raise TooLargeError("it stands for too many values")
        match value:
            case dict():
                return dict(self._entries(value, number))
            case list():
                return list(self._items(value, number))
            case str():
                return value.replace("#", number)
        return value

    def _entries(self, value: dict[str, Any], number: str) -> Iterator[tuple[str, Any]]:
        for key, item in value.items():
            times = _TIMES.search(key)
            if times is None:
                yield key, self.value(item, number)
                continue
            for i in range(int(times[1])):
                each = f"{number}{i}"
                yield key[: times.start()] + each + key[times.end() :], self.value(item, each)

    def _items(self, value: list[Any], number: str) -> Iterator[Any]:
        times = _TIMES.fullmatch(value[0]) if value and isinstance(value[0], str) else None
        if times is None:
            yield from (self.value(item, number) for item in value)
            return
        for i in range(int(times[1])):
            for item in value[1:]:
                yield self.value(item, f"{number}{i}")
