import pytest

from policy.problem import MOST_BYTES
from webhook.active_config import POLICY, PROFILES, ActiveConfig

ALL = '[{"name": "all", "effect": {"labels": {"a": "b"}}}]'


def names(decided):
    return [selector.name for selector in decided.snapshot.profiles.selectors]


def test_nothing_is_decided_before_both_config_maps_were_read():
    decided = ActiveConfig()

    assert decided.missing() == "ConfigMap linkwise-system/linkwise was not read yet"
    decided = decided.read(POLICY, None)
    assert decided.missing() == "ConfigMap kube-system/acs-profile was not read yet"
    assert decided.read(PROFILES, None).missing() is None


def test_what_is_not_there_decides_nothing():
    decided = ActiveConfig().read(POLICY, None).read(PROFILES, None)

    assert decided.snapshot == ActiveConfig().snapshot
    assert decided.snapshot.generation == 0


def test_each_change_counts_and_a_new_layout_is_none():
    decided = ActiveConfig().read(PROFILES, ALL)
    again = decided.read(PROFILES, f" {ALL}\n")

    assert (names(decided), decided.snapshot.generation) == (["all"], 1)
    assert again.snapshot is decided.snapshot
    assert again.read(POLICY, "strict: false").snapshot.generation == 2


@pytest.mark.parametrize(
    ("home", "text", "said"),
    [
        pytest.param(PROFILES, "[", "kube-system/acs-profile cannot be taken: data[selectors]"),
        pytest.param(POLICY, "a: b", "linkwise-system/linkwise cannot be taken: data[policy.yaml]"),
    ],
    ids=["profiles", "policy"],
)
def test_what_is_malformed_changes_nothing_until_it_is_mended(home, text, said):
    good = ActiveConfig().read(POLICY, "strict: false").read(PROFILES, ALL)
    bad = good.read(home, text)

    assert bad.snapshot is good.snapshot
    assert bad.missing() is None
    assert said in bad.why(home)
    assert bad.read(home, None).why(home) is None


@pytest.mark.parametrize("home", [POLICY, PROFILES], ids=["policy", "profiles"])
def test_a_watched_text_that_is_too_long_is_refused_unread(home):
    good = ActiveConfig().read(POLICY, "strict: false").read(PROFILES, ALL)
    bad = good.read(home, "[" * (MOST_BYTES + 1))

    assert bad.snapshot is good.snapshot
    assert f"at most {MOST_BYTES} are read" in bad.why(home)


def test_of_several_problems_each_is_told_with_its_line():
    decided = ActiveConfig().read(POLICY, "a: 1\nstrict: x\n")

    why = decided.missing()
    assert "2 problems: (1) line 1: a: " in why
    assert "(2) line 2: strict: " in why
    assert decided.why(PROFILES) is None
