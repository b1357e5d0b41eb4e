"""Opens a page whose address is a secret, which other users of the machine do not see."""

import os
import tempfile
import webbrowser
from html import escape
from pathlib import Path


def open_browser(url: str) -> Path | None:
    """Open a URL in the person's browser; return a file to delete, None without a browser.

    Command lines of processes are public, so the browser gets a file that leads to the URL and that
    only this user can read.
    """
    descriptor, name = tempfile.mkstemp(prefix="linkwise-", suffix=".html")
    path = Path(name)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(f'<!doctype html><meta http-equiv="refresh" content="0;url={escape(url)}">\n')
    if webbrowser.open(path.as_uri()):
        return path
    path.unlink()
    return None
