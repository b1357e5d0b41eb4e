"""Where a page comes from: the command, the time, and what it read."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from cli.render.page.markup import Markup, element, name


@dataclass(frozen=True, slots=True)
class Caption:
    """Where a page comes from."""

    command: Sequence[str]
    """As it may be typed again."""
    clock: float
    """When it was made [s since 1970]."""
    inputs: Sequence[str]
    """Files, or the cluster's address."""

    @property
    def title(self) -> str:
        """The page's title."""
        return " ".join(self.command[:2])


def caption(given: Caption) -> Markup:
    """Return the caption of a page."""
    made = datetime.fromtimestamp(given.clock, UTC).strftime("%Y-%m-%d %H:%M UTC")
    inputs = [(" · " if place else "", name(one)) for place, one in enumerate(given.inputs)]
    return element(
        "div",
        element("p", shlex.join(given.command), class_="mono quiet"),
        element("p", made, " · from ", inputs, class_="quiet small"),
        class_="caption",
    )
