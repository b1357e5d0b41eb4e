"""The caption of a page: the command, the time, and its inputs."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from linkwise.views.render.page.markup import Markup, element, name


@dataclass(frozen=True, slots=True)
class Caption:
    """The origin of a page."""

    command: Sequence[str]
    """As it can be typed again."""
    clock: float
    """The time of the page [s since 1970]."""
    inputs: Sequence[str]
    """Files, or the cluster's address."""

    @property
    def title(self) -> str:
        """The page's title."""
        return " ".join(self.command[:2])


def caption_markup(caption: Caption) -> Markup:
    """Return the caption of a page."""
    created = datetime.fromtimestamp(caption.clock, UTC).strftime("%Y-%m-%d %H:%M UTC")
    inputs = [(" · " if i else "", name(each)) for i, each in enumerate(caption.inputs)]
    return element(
        "div",
        element("p", shlex.join(caption.command), class_="mono quiet"),
        element("p", created, " · from ", inputs, class_="quiet small"),
        class_="caption",
    )
