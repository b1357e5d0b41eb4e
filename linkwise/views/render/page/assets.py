"""The style sheet and the script of a page, from the files in `web/`."""

import re
from base64 import b64encode
from hashlib import sha256
from importlib.resources import files

from linkwise.views.render.page.markup import Markup


def _text(name: str) -> str:
    return files("linkwise.views.render.page").joinpath("web", name).read_text(encoding="utf-8")


MODULES = {name: _text(name) for name in ("elements.js", "rows.js", "map.js")}
"""The modules that the live page uses too; each imports only modules before it."""
STYLE = "".join(map(_text, ("base.css", "map.css", "chart.css")))
_MODULE_ONLY = re.compile(r"^import [^;]*;\n|^//.*\n|^export (?=const|function)", re.MULTILINE)
SCRIPT = Markup(_MODULE_ONLY.sub("", "".join((*MODULES.values(), _text("report.js")))))
"""All modules as one, the only script of a page in a file."""
SCRIPT_HASH = f"'sha256-{b64encode(sha256(SCRIPT.encode()).digest()).decode()}'"
"""The script's source expression in the page's Content-Security-Policy."""
