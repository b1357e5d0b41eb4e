import re

from linkwise.planning.placement.filtering.reasons import Reason, count_reasons


def test_nodes_are_counted_by_reason_the_most_frequent_first():
    reasons = {Reason.TAINT: 1, Reason.CPU: 2, Reason.GPUS: 1}

    assert count_reasons(reasons) == (
        "too little CPU (2), a taint that the pod does not tolerate (1), too few free GPUs (1)"
    )
    assert count_reasons({}) == ""


def test_reasons_hold_no_numbers_so_that_a_scheduler_can_count_them():
    assert not [reason for reason in Reason if re.search(r"\d", reason)]
