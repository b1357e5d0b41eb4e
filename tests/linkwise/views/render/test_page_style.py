import re

import pytest

from linkwise.views.render.page.assets import STYLE

COLOUR = r"--([a-z-]+):(#[0-9a-f]{6})"
ON_UNIT, *_ = re.findall(r"--on:(#[0-9a-f]{6})", STYLE)
LIGHT, DARK = (dict(re.findall(COLOUR, rule)) for rule in re.findall(r":root{([^}]*)}", STYLE)[:2])
LIGHT.pop("on")
UNIT_COLOURS = re.findall(r"--unit:(#[0-9a-f]{6})", STYLE)
TEXT, SHAPE = 4.5, 3.0
"""WCAG 2.2 AA: contrast of text, and of shapes that mean something."""
both = pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])


def luminance(colour: str) -> float:
    channels = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    red, green, blue = (
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_contrast_is_measured_as_the_guidelines_say():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@both
@pytest.mark.parametrize("text", ["ink", "quiet", "good", "bad"])
@pytest.mark.parametrize("ground", ["page", "surface"])
def test_text_stands_out_from_its_ground(palette, text, ground):
    assert contrast(palette[text], palette[ground]) >= TEXT


@both
@pytest.mark.parametrize("shape", ["edge", "hatch", "focus", "one", "two", "many", "bad"])
def test_shapes_stand_out_from_the_surface(palette, shape):
    assert contrast(palette[shape], palette["surface"]) >= SHAPE


@pytest.mark.parametrize("colour", UNIT_COLOURS)
def test_text_stands_out_from_the_colour_of_a_unit(colour):
    assert contrast(colour, ON_UNIT) >= TEXT


def test_both_palettes_have_the_same_colours_and_all_that_are_used():
    used = set(re.findall(r"var\(--([a-z-]+)\)", STYLE))

    assert LIGHT.keys() == DARK.keys()
    assert used <= LIGHT.keys() | {"unit", "on", "heat", "taken", "seam", "trial", "columns"}


def test_dark_palette_follows_colour_scheme():
    dark = STYLE.partition("@media (prefers-color-scheme:dark)")[2]

    assert dark.startswith(f"{{:root{{--page:{DARK['page']};")
