"""Changes of the CAs."""

from dataclasses import dataclass
from enum import StrEnum

from certs.authorities import Authorities


class Action(StrEnum):
    """A change of the CAs."""

    ISSUE = "CAIssued"
    """A new CA signs at once: there was no usable one."""
    ANNOUNCE = "CAAnnounced"
    SWITCH = "CASwitched"
    RETIRE = "CARetired"


@dataclass(frozen=True, slots=True)
class Transition:
    """A change of the CAs, to be stored."""

    action: Action
    authorities: Authorities
    reason: str
