import pytest

from linkwise.runtime.kube.lease import LeaseTimings


@pytest.mark.parametrize("timing", [(15, 15, 2), (15, 10, 10), (15, 10, 0), (2, 10, 1)])
def test_invalid_lease_timings_are_refused(timing):
    with pytest.raises(ValueError, match="retry < renew deadline < lease duration"):
        LeaseTimings(*timing)
