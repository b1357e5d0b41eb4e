"""The frame of every page: a single file with one script, which loads nothing."""

from linkwise.views.render.page.assets import SCRIPT, SCRIPT_HASH, STYLE
from linkwise.views.render.page.drawing import DEFINITIONS
from linkwise.views.render.page.markup import Child, Markup, element

POLICY = f"default-src 'none'; style-src 'unsafe-inline'; script-src {SCRIPT_HASH}"
"""The browser then loads nothing and runs no other script."""


def page(title: str, *body: Child) -> str:
    """Return a complete HTML page with the script of the map."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        element("style", Markup(STYLE)),
    )
    main = element("main", *body)
    inner = element("body", DEFINITIONS, main, element("script", SCRIPT, type="module"))
    return f"<!doctype html>\n{element('html', head, inner, lang='en')}\n"
