"""The formats of all traces that can be replayed."""

from linkwise.replay.traces.format import TraceFormat
from linkwise.replay.traces.gangs import ACME, DLRM, GFS, HELIOS, PHILLY
from linkwise.replay.traces.history import HISTORY
from linkwise.replay.traces.openb import OPENB
from linkwise.replay.traces.philly import PHILLY_JSON

# A format with more columns comes before one whose columns it has, too.
TABLES: tuple[TraceFormat, ...] = (OPENB, DLRM, GFS, HELIOS, ACME, PHILLY, HISTORY)
"""CSV files."""
FORMATS = (*TABLES, PHILLY_JSON)
