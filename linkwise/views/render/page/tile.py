"""The drawing of one GPU: its index, and its holder or state."""

from collections.abc import Iterator

from linkwise.views.output.words import card_problems
from linkwise.views.render.page.layout import Spot
from linkwise.views.render.page.markup import Markup, element, together
from linkwise.views.render.page.occupancy import GPU, Part, State

WHOLE_HEIGHT, SHARED_HEIGHT = 48, 64
"""Of a tile; a shared GPU has a bar more."""


def state_words(gpu: GPU) -> str:
    """Return the state of a GPU, with its problems."""
    match gpu.state:
        case State.PLACED:
            words = [gpu.parts[0].tag]
        case State.SHARED:
            words = [f"{gpu.taken} of {gpu.capacity} {gpu.measure} allocated"]
        case State.UNHEALTHY | State.CORDONED:
            words = []
        case State.COUNTED:
            words = ["by count"]
        case State.UNSURE:
            words = ["unknown"]
        case _:
            words = [gpu.state.value]
    return ", ".join(words + card_problems(gpu.card, is_held=bool(gpu.parts)))


def tile(gpu: GPU, spot: Spot, size: tuple[float, float]) -> Markup:
    """Return the drawing of one GPU."""
    width, height = size
    left, top = spot.x - width / 2, spot.y - height / 2
    unit, faulty = gpu.unit, "" if gpu.card.usable else " faulty"
    style, clear = f"tile {gpu.state}{faulty}", "" if unit else " clear"
    word = _word(gpu)
    is_tight = len(word) * 7 > width
    return element(
        "g",
        element("title", f"GPU{gpu.index}: {_held_by(gpu)}"),
        element("rect", x=left, y=top, width=width, height=height, rx=8, class_=style),
        element("text", f"GPU{gpu.index}", x=spot.x, y=top + 18, class_=f"index{clear}"),
        _share_bar(gpu, spot.x, top + 26, width - 12) if gpu.capacity else None,
        element(
            "text",
            word,
            x=spot.x,
            y=top + height - 9,
            class_="tag" if unit else f"word{clear}",
            textLength=width - 5 if is_tight else None,
            lengthAdjust="spacingAndGlyphs" if is_tight else None,
        ),
        class_=f"on u{unit.colour}" if unit else None,
    )


def _held_by(gpu: GPU) -> str:
    holders = [f"{part.holding.pod} {part.words}".strip() for part in gpu.parts]
    return "; ".join([state_words(gpu), *holders])


def _word(gpu: GPU) -> str:
    match gpu.state:
        case State.PLACED:
            return gpu.parts[0].tag
        case State.SHARED:
            return f"{gpu.taken}/{gpu.capacity}{' GiB' if gpu.measure == 'GiB' else ''}"
        case State.COUNTED:
            return "by count"
        case State.UNSURE:
            return "unknown"
        case _:
            return gpu.state.value


def _share_bar(gpu: GPU, middle: float, top: float, width: float) -> Markup:
    left, height = middle - width / 2, 15
    return together(
        element("rect", x=left, y=top, width=width, height=height, class_="slot"),
        (
            _part(part, left + width * start, top, width * gpu.size(part) / gpu.capacity)
            for part, start in _placed_along(gpu)
        ),
    )


def _placed_along(gpu: GPU) -> Iterator[tuple[Part, float]]:
    start = 0
    for part in gpu.parts:
        yield part, start / gpu.capacity
        start += gpu.size(part)


def _part(part: Part, left: float, top: float, width: float) -> Markup:
    kind, colour = ("placed", f" u{part.unit.colour}") if part.unit else ("held", "")
    rect = element("rect", x=left, y=top, width=width, height=15, class_=f"part {kind}{colour}")
    fits = part.tag and width >= 7.5 * len(part.tag) + 3
    middle = left + width / 2
    text = element("text", part.tag, x=middle, y=top + 11.5, class_="on count") if fits else None
    return together(rect, text)
