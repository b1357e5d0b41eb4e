"""HTTP/1.1 on the wire: aiohttp's parser of requests, and answers as bytes."""

import asyncio
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus

from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import HttpRequestParser

from runtime.http.types import HttpResponse
from runtime.process.clock import wall

_NO_LIMIT = 1 << 30
"""Of what the parser keeps of a body [bytes]; `runtime.http.body` has the limit that holds."""


def new_parser(loop: asyncio.AbstractEventLoop) -> HttpRequestParser:
    """Return a parser for the requests of one connection, one at a time."""
    return HttpRequestParser(
        _Unpaced(loop),
        loop,
        _NO_LIMIT,
        # Bodies are not decompressed: the limit is for the bytes that were sent.
        auto_decompress=False,
        max_msg_queue_size=1,
    )


class _Unpaced(BaseProtocol):
    """What aiohttp's parser asks to be held up; it is not, since bodies are taken as they come."""

    def pause_reading(self) -> None:
        """Do nothing."""

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Do nothing."""


def written(answer: HttpResponse, *, last: bool, bare: bool = False) -> bytes:
    """Return an answer as bytes.

    Args:
        answer: What is answered.
        last: The connection ends with it.
        bare: Without the body: a HEAD asked.
    """
    more = "".join(f"{name}: {value}\r\n" for name, value in answer.headers.items())
    if last:
        more += "Connection: close\r\n"
    head = (
        f"{_status(answer.status)}Content-Type: {answer.content_type}\r\n"
        f"Content-Length: {len(answer.body)}\r\n{_date(int(wall()))}{more}\r\n"
    )
    return head.encode() if bare else head.encode() + answer.body


@lru_cache(maxsize=64)
def _status(status: int) -> str:
    return f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"


@lru_cache(maxsize=1)
def _date(second: int) -> str:
    return f"Date: {formatdate(second, usegmt=True)}\r\nServer: linkwise\r\n"
