"""Log lines: one JSON object each on standard output, in printable ASCII for any user input."""

import json
import logging
import sys
from collections.abc import MutableMapping
from typing import BinaryIO

import msgspec
import structlog

from linkwise.runtime.process.clock import now_rfc3339

_MAX_TEXT = 8192
_encoder = msgspec.json.Encoder(enc_hook=repr)


def configure(*, level: str = "info", stream: BinaryIO | None = None) -> None:
    """Configure the log of this process, libraries included.

    Args:
        level: Lowest level that is written: debug, info, warning or error.
        stream: None: standard output.
    """
    lowest = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            _stamp,
            structlog.processors.format_exc_info,
            structlog.processors.EventRenamer("msg"),
            render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(lowest),
        logger_factory=structlog.BytesLoggerFactory(stream or sys.stdout.buffer),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(handlers=[_Forward()], level=logging.WARNING, force=True)


def _stamp(
    _logger: object, _method: str, event: MutableMapping[str, object]
) -> MutableMapping[str, object]:
    event["ts"] = now_rfc3339()
    return event


def render(_logger: object, _method: str, event: MutableMapping[str, object]) -> bytes:
    """Return an event as one line of printable ASCII.

    JSON alone leaves some characters as they are that a terminal or an editor acts upon: DEL, C1
    controls, line separators, changes of direction.
    """
    return encode_line(event)


def encode_line(event: MutableMapping[str, object]) -> bytes:
    """Return an event as `render` does, which is called by structlog."""
    for key, value in event.items():
        if isinstance(value, str) and len(value) > _MAX_TEXT:
            event[key] = f"{value[:_MAX_TEXT]}…"
    try:
        line = _encoder.encode(event)
    except UnicodeEncodeError:  # A lone surrogate, which JSON can carry and UTF-8 cannot.
        line = json.dumps(event, default=repr).encode()
    if line.isascii() and b"\x7f" not in line:
        return line
    return json.dumps(json.loads(line)).replace("\x7f", "\\u007f").encode()


class _Forward(logging.Handler):
    """Write the log records of libraries in the format of Linkwise's own."""

    def emit(self, record: logging.LogRecord) -> None:
        structlog.get_logger().log(
            record.levelno, record.getMessage(), logger=record.name, exc_info=record.exc_info
        )
