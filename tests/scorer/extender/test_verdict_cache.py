from scorer.extender.verdict_cache import VerdictCache


def test_a_node_is_asked_once_for_each_question_until_something_changes_there():
    known, asked = VerdictCache(), []

    def ask(question, *names):
        return known.ask(question, names, lambda name: asked.append(name) or f"{question} {name}")

    assert ask("x", "a", "b") == ["x a", "x b"]
    assert ask("x", "b", "a", "b") == ["x b", "x a", "x b"]
    assert asked == ["a", "b"]
    assert ask("y", "a") == ["y a"]
    known.forget(["a", "gone"])
    assert ask("x", "a", "b") == ["x a", "x b"]
    assert asked == ["a", "b", "a", "a"]


def test_only_the_questions_asked_last_are_remembered():
    known, asked = VerdictCache(), []

    def ask(question):
        known.ask(question, ["a"], lambda _: asked.append(question))

    for number in range(1000):
        ask(f"{number}")
        ask("always")
    ask("999")
    ask("0")

    assert asked.count("always") == asked.count("999") == 1
    assert asked.count("0") == 2
