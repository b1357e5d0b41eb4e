"""The formats of all traces that can be replayed."""

from replay.traces.format import TraceFormat
from replay.traces.gangs import ACME, DLRM, GFS, HELIOS, PHILLY
from replay.traces.openb import OPENB

# A format with more columns comes before one whose columns it has, too.
FORMATS: tuple[TraceFormat, ...] = (OPENB, DLRM, GFS, HELIOS, ACME, PHILLY)
