"""The formats of all traces that can be replayed."""

from replay.traces.format import TraceFormat
from replay.traces.gangs import ACME, DLRM, GFS, HELIOS, PHILLY
from replay.traces.history import HISTORY
from replay.traces.openb import OPENB
from replay.traces.philly import PHILLY_JSON

# A format with more columns comes before one whose columns it has, too.
TABLES: tuple[TraceFormat, ...] = (OPENB, DLRM, GFS, HELIOS, ACME, PHILLY, HISTORY)
"""CSV files."""
FORMATS = (*TABLES, PHILLY_JSON)
