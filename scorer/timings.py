"""The durations of a leader's work."""

from dataclasses import dataclass

from linkwise.planning.cycle.starvation import MIN_RESERVATION


@dataclass(frozen=True, slots=True)
class Timings:
    """All in seconds; tests shorten them."""

    round: float = 0.02
    """After this a round of planning lets other tasks run."""
    first_limit: float = 0.3
    """First time limit for planning one unit."""
    retry_limit: float = 1.5
    """The same for a unit that exceeded the first limit, and for a dry run. The webhook waits a
    little longer for it. It is less than the 2 s between two renewals of the Lease."""
    slow_unit_retry: float = 1.0
    """First delay before a unit that exceeded its limit is planned again."""
    slow_unit_retry_max: float = 600.0
    fault_retry: float = 1.0
    """First delay before a stage that raised an unforeseen exception is tried again."""
    owner_retry: float = 30.0
    """First delay before the same owner or PodGroup is read again."""
    commit_retry: float = 1.0
    """First delay before a refused commit is tried again."""
    claim_repair: float = 3.0
    """A pod whose claim is written is not bound for this long before the claim is checked first."""
    outcome_read: float = 2.0
    """Before the first read after a write without an answer: as long as the API server may work on
    the write (`fence.WRITE_TIMEOUT`)."""
    bind_timeout: float = 3.5
    """Time for which a scheduler waits for the API server to bind a pod. Together with
    `pod_watch_timeout` it is less than the scheduler's timeout of 5 s."""
    pod_watch_timeout: float = 1.0
    """Longest wait until the watch shows a pod: a scheduler whose pod is refused
    retries after 1 s, too."""
    min_reservation: float = MIN_RESERVATION
    """The shortest reservation of nodes, however short the policy's ageing is."""
    report_delay: float = 1.0
    """A gang changes this long before its status says so."""
    report_interval: float = 5.0
    """Between two status updates of one gang that goes on waiting, or is being bound."""
    node_check_interval: float = 2.0
    """Between two checks for nodes without accounting."""
    requeue_interval: float = 1.0
    """Between two passes over the pods that fitted nowhere when kube-scheduler asked. Meanwhile it
    may try them again by itself: its first backoff is 1 s, too."""
    usage_interval: float = 15.0
    """Between two measurements of free sets, of the use of GPUs, and of the waiting of units."""
    claim_check_interval: float = 10.0
    """Between two checks whether the claims of pods hold what was planned."""
    scale_up_interval: float = 10.0
    """Between two comparisons of the units that wait for capacity with what was asked of an
    autoscaler. A unit asks once it has waited in two of them."""
