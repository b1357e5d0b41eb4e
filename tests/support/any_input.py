"""Command lines of any input: each ends with an answer, or with one line about the problem."""

import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout

from linkwise.cli.__main__ import run


def ran(*arguments: str, stdin: str) -> tuple[int, str, str]:
    out, err, kept = io.StringIO(), io.StringIO(), sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin.encode(errors="surrogatepass")))
    try:
        with redirect_stdout(out), redirect_stderr(err):
            code = run(list(arguments))
    finally:
        sys.stdin = kept
    return code, out.getvalue(), err.getvalue()


def is_told(code: int, out: str, err: str) -> None:
    assert "internal error" not in err
    if code == 2:
        assert out == ""
        assert err.startswith("linkwise: ")
        assert err.count("\n") == 1
    else:
        json.loads(out)
