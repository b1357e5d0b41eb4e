"""The result of one pass over all objects."""

from dataclasses import dataclass

from certs.rotation import Phase
from certs.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one pass."""

    snapshot: Snapshot
    ca_expiry: float | None
    """Expiry of the CA that signs; of others, when the first server has no valid CA [s since 1970].
    None: there is no CA."""
    phase: Phase | None
    """None where other software issues."""
    since: float
    """When the phase began [s since 1970]."""
    pause: float | None
    """Time until the next pass is due; None: no time is known [s]."""
    skew: float | None
    """By how much the own clock is ahead of the API server's; None: not known [s]."""
    problem: str | None = None
    """Why nothing was issued; None where all is done."""
