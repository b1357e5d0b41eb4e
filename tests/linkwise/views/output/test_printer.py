import pytest

from linkwise.views.output.printer import Paint, aligned, sentence


def test_columns_start_at_the_same_place():
    first, *_ = aligned([["a", "b"], ["long", Paint("c", "red")], ["d"]])

    assert first == "a     b"
    assert list(aligned([])) == []


def test_colours_do_not_count_as_width():
    red, plain = aligned([[Paint("a", "red"), "x"], ["a", "x"]])

    assert red.replace("\x1b[31m", "").replace("\x1b[0m", "") == plain


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("write 20", "Write 20."),
        ("did you?", "Did you?"),
        ("NV2 is", "NV2 is."),
        ("nvidia.com/gpu is", "nvidia.com/gpu is."),
        ("", "."),
    ],
)
def test_a_message_becomes_a_sentence(text, shown):
    assert sentence(text) == shown
