"""The metadata that controllers set on their pods, for kinds that do it in the same way."""

from collections.abc import Mapping

from linkwise.workloads.operator_keys import (
    BATCH_JOB_NAME,
    BATCH_JOB_NAME_OLD,
    STATEFULSET_POD_INDEX,
    STATEFULSET_POD_NAME,
)
from linkwise.workloads.pod_set import Marks, Stamp


def numbered(
    stem: str, labels: Mapping[str, str] = {}, index_label: str | None = None, shift: int = 0
) -> Stamp:
    """Return the stamp of pods `<stem>-<i>`, optionally with a label of value i plus a shift."""

    def stamp(index: int) -> Marks:
        ordinal = {index_label: str(index + shift)} if index_label else {}
        return Marks(f"{stem}-{index}", {**labels, **ordinal})

    return stamp


def ordinal(stem: str, labels: Mapping[str, str] = {}) -> Stamp:
    """Return the stamp of a StatefulSet's pods."""

    def stamp(index: int) -> Marks:
        name = f"{stem}-{index}"
        own = {STATEFULSET_POD_NAME: name, STATEFULSET_POD_INDEX: str(index)}
        return Marks(name, {**labels, **own})

    return stamp


def single(name: str, labels: Mapping[str, str] = {}) -> Stamp:
    """Return the stamp of one pod."""
    return lambda _: Marks(name, labels)


def batch_labels(name: str) -> dict[str, str]:
    """Return the labels of a batch Job's pods."""
    return {BATCH_JOB_NAME: name, BATCH_JOB_NAME_OLD: name}
