import enum
import io
import json
import logging
from datetime import datetime

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from linkwise.runtime.http.observers import log_requests
from linkwise.runtime.http.types import CompletedRequest
from linkwise.runtime.process.clock import wall
from linkwise.runtime.process.logs import configure, render


@pytest.fixture
def lines():
    """Every line that was logged so far, parsed."""
    stream = io.BytesIO()
    handlers, level = logging.root.handlers[:], logging.root.level
    configure(stream=stream)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    structlog.reset_defaults()
    logging.root.handlers[:], logging.root.level = handlers, level


def test_request_is_one_line_with_the_fields_of_its_route(lines):
    served = CompletedRequest(
        "/mutate", 200, 0.0012345, 6600, {"pod": "ns/a", "verdict": "allowed"}
    )

    log_requests()(served)

    (line,) = lines()
    written = datetime.fromisoformat(line.pop("ts"))
    assert abs(written.timestamp() - wall()) < 5
    assert line == {
        "level": "info",
        "msg": "Answered request",
        "path": "/mutate",
        "status": 200,
        "duration_ms": 1.234,
        "size": 6600,
        "pod": "ns/a",
        "verdict": "allowed",
    }


def test_lines_below_the_level_are_not_written(lines):
    structlog.get_logger().debug("Small talk")

    assert lines() == []


def test_records_of_libraries_have_the_same_format(lines):
    logging.getLogger("aiohttp.server").error("broke: %s", "a\nb")

    (line,) = lines()
    assert (line["level"], line["logger"], line["msg"]) == (
        "error",
        "aiohttp.server",
        "broke: a\nb",
    )


def test_a_traceback_of_a_library_is_kept(lines):
    try:
        raise_one()
    except RuntimeError:
        logging.getLogger("aiohttp.server").exception("broke")

    assert "RuntimeError: a bug" in lines()[0]["exception"]


def raise_one():
    raise RuntimeError("a bug")


def test_a_traceback_stays_on_its_line(lines):
    try:
        raise_one()
    except RuntimeError:
        structlog.get_logger().exception("Handler failed")

    (line,) = lines()
    assert "RuntimeError: a bug" in line["exception"]


@given(st.text(alphabet=st.characters(exclude_categories=())))
def test_any_text_is_one_line_of_printable_ascii_and_decodes_unchanged(text):
    line = render(None, "", {"msg": "Denied", "pod": text})

    assert line.isascii()
    assert line.decode().isprintable()
    assert json.loads(line) == {"msg": "Denied", "pod": text}


@pytest.mark.parametrize("text", ["\x1b[2J", "a\nb", "\x7f", "\u202e", "\u2028", "\x9b", "\ud800"])
def test_no_control_character_is_written(text):
    line = render(None, "", {"pod": text})

    assert line.decode().isprintable()
    assert line.isascii()


def test_a_long_text_is_cut():
    line = render(None, "", {"pod": "x" * 10_000})

    assert json.loads(line)["pod"] == "x" * 8192 + "…"


def test_a_value_of_any_type_is_written():
    class Verdict(enum.StrEnum):
        DENIED = "denied"

    line = render(None, "", {"a": Verdict.DENIED, "b": 1j, "c": {"d": [1, None]}, "e": "\ud800"})

    assert json.loads(line) == {"a": "denied", "b": "1j", "c": {"d": [1, None]}, "e": "\ud800"}
