from scorer.extender.verdict_cache import VerdictCache


def test_a_result_is_computed_once_until_its_node_changes():
    cache, computed = VerdictCache(), []

    def get(question, *names):
        def compute(name):
            computed.append(name)
            return f"{question} {name}"

        return cache.get_or_compute(question, names, compute)

    assert get("x", "a", "b") == ["x a", "x b"]
    assert get("x", "b", "a", "b") == ["x b", "x a", "x b"]
    assert computed == ["a", "b"]
    assert get("y", "a") == ["y a"]
    cache.invalidate(["a", "gone"])
    assert get("x", "a", "b") == ["x a", "x b"]
    assert computed == ["a", "b", "a", "a"]


def test_only_the_most_recent_questions_are_cached():
    cache, computed = VerdictCache(), []

    def ask(question):
        cache.get_or_compute(question, ["a"], lambda _: computed.append(question))

    for number in range(1000):
        ask(f"{number}")
        ask("always")
    ask("999")
    ask("0")

    assert computed.count("always") == computed.count("999") == 1
    assert computed.count("0") == 2
