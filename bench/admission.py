"""Admission time from the bytes of an AdmissionReview to the bytes of its answer."""

from collections.abc import Callable, Iterator
from time import perf_counter

from bench.review import review_bytes, run

TIMES = 2_000


def rows() -> Iterator[tuple[str, str, Callable[[], float]]]:
    """Yield the measurements."""
    body = review_bytes()
    name = f"admission of a {len(body) / 1000:.1f} KB AdmissionReview, bytes to bytes"

    def measure() -> float:
        start = perf_counter()
        for _ in range(TIMES):
            run(body)
        return (perf_counter() - start) / TIMES

    yield name, "≤ 60 µs", measure
