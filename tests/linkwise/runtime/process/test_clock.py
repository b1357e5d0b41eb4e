import time
from datetime import datetime

from linkwise.runtime.process.clock import now_rfc3339, rfc3339, wall


def test_wall_clock_is_in_seconds_since_1970():
    before = time.time()  # noqa: TID251
    assert before <= wall() <= time.time()  # noqa: TID251


def test_a_moment_is_formatted_in_whole_seconds_of_utc():
    assert rfc3339(1_767_323_045.9) == "2026-01-02T03:04:05Z"


def test_the_time_now_is_formatted_in_microseconds_of_utc():
    before, now, after = wall(), now_rfc3339(), wall()

    assert now[-8] == "."
    assert now[-1] == "Z"
    assert before - 1e-6 <= datetime.fromisoformat(now).timestamp() <= after
