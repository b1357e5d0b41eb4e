from typing import Any

import msgspec
import pytest
from support.builders import a_pod

from linkwise.cluster.objects.pod import Pod
from linkwise.workloads import operator_keys
from linkwise.workloads.kinds.mpi_job import is_launcher
from linkwise.workloads.rank import rank


def _pod(**parts: Any) -> Pod:
    return msgspec.convert(a_pod(**parts), Pod)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({operator_keys.REPLICA_TYPE: "launcher"}, True),
        ({operator_keys.REPLICA_TYPE: "Launcher"}, True),
        ({operator_keys.JOB_ROLE: "launcher"}, True),
        ({operator_keys.MPI_ROLE_TYPE: "launcher"}, True),
        ({operator_keys.REPLICA_TYPE: "worker"}, False),
        ({operator_keys.JOB_ROLE: "worker", operator_keys.MPI_ROLE_TYPE: "worker"}, False),
        ({}, False),
    ],
    ids=str,
)
def test_a_launcher_is_known_by_the_label_of_each_operator(labels, expected):
    assert is_launcher(_pod(labels=labels)) is expected


COMPLETION = {operator_keys.JOB_COMPLETION_INDEX: "5"}


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({"labels": {operator_keys.REPLICA_INDEX: "3"}, "name": "job-worker-7"}, 3),
        ({"labels": {operator_keys.REPLICA_INDEX: "0", **COMPLETION}}, 0),
        ({"labels": COMPLETION, "name": "job-2-x8k2p"}, 5),
        ({"annotations": COMPLETION, "labels": {operator_keys.STATEFULSET_POD_INDEX: "6"}}, 5),
        ({"labels": {operator_keys.STATEFULSET_POD_INDEX: "6"}, "name": "set-7"}, 6),
        ({"labels": {operator_keys.REPLICA_INDEX: "first"}, "name": "job-worker-7"}, 7),
        ({"name": "job-worker-12"}, 12),
        ({"name": "job-worker-007"}, 7),
        ({"name": "worker"}, None),
        ({"name": "worker7"}, None),
        ({"name": "7"}, None),
        ({"name": ""}, None),
        ({"name": "worker-" + "9" * 40}, None),
    ],
    ids=lambda case: str(case)[:40],
)
def test_the_rank_is_the_first_index_that_something_states(parts, expected):
    assert rank(_pod(**parts)) == expected
