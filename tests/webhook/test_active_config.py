import pytest

from policy.problem import MOST_BYTES
from webhook.active_config import POLICY, PROFILES, ActiveConfig

ALL = '[{"name": "all", "effect": {"labels": {"a": "b"}}}]'


def names(decided):
    return [selector.name for selector in decided.snapshot.profiles.selectors]


def test_nothing_is_decided_before_both_config_maps_were_read():
    decided = ActiveConfig()

    assert decided.missing() == "ConfigMap linkwise-system/linkwise was not read yet"
    decided = decided.update(POLICY, None)
    assert decided.missing() == "ConfigMap kube-system/acs-profile was not read yet"
    assert decided.update(PROFILES, None).missing() is None


def test_what_is_not_there_decides_nothing():
    decided = ActiveConfig().update(POLICY, None).update(PROFILES, None)

    assert decided.snapshot == ActiveConfig().snapshot
    assert decided.snapshot.generation == 0


def test_each_change_counts_and_a_new_layout_is_none():
    decided = ActiveConfig().update(PROFILES, ALL)
    again = decided.update(PROFILES, f" {ALL}\n")

    assert (names(decided), decided.snapshot.generation) == (["all"], 1)
    assert again.snapshot is decided.snapshot
    assert again.update(POLICY, "strict: false").snapshot.generation == 2


@pytest.mark.parametrize(
    ("source", "text", "said"),
    [
        pytest.param(PROFILES, "[", "kube-system/acs-profile cannot be taken: data[selectors]"),
        pytest.param(POLICY, "a: b", "linkwise-system/linkwise cannot be taken: data[policy.yaml]"),
    ],
    ids=["profiles", "policy"],
)
def test_what_is_malformed_changes_nothing_until_it_is_mended(source, text, said):
    good = ActiveConfig().update(POLICY, "strict: false").update(PROFILES, ALL)
    bad = good.update(source, text)

    assert bad.snapshot is good.snapshot
    assert bad.missing() is None
    assert said in bad.refusal(source)
    assert bad.update(source, None).refusal(source) is None


@pytest.mark.parametrize("source", [POLICY, PROFILES], ids=["policy", "profiles"])
def test_a_watched_text_that_is_too_long_is_refused_unread(source):
    good = ActiveConfig().update(POLICY, "strict: false").update(PROFILES, ALL)
    bad = good.update(source, "[" * (MOST_BYTES + 1))

    assert bad.snapshot is good.snapshot
    assert f"at most {MOST_BYTES} are read" in bad.refusal(source)


def test_of_several_problems_each_is_told_with_its_line():
    decided = ActiveConfig().update(POLICY, "a: 1\nstrict: x\n")

    why = decided.missing()
    assert "2 problems: (1) line 1: a: " in why
    assert "(2) line 2: strict: " in why
    assert decided.refusal(PROFILES) is None
