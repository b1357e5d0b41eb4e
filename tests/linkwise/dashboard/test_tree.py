from linkwise.dashboard.tree import tree_of
from linkwise.views.render.page.markup import element


def test_a_tree_has_the_texts_of_its_markup_unescaped():
    text = '<b onclick="x">&lt;script&gt;'
    tree = tree_of(element("svg", element("text", text, textLength=3), viewBox="0 0 1 1"))

    assert tree == ["svg", {"viewBox": "0 0 1 1"}, [["text", {"textLength": "3"}, [text]]]]
