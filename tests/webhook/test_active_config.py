import pytest

from policy.problem import MOST_BYTES
from webhook.active_config import POLICY, PROFILES, ActiveConfig

ALL = '[{"name": "all", "effect": {"labels": {"a": "b"}}}]'


def names(decided):
    return [selector.name for selector in decided.snapshot.profiles.selectors]


def test_config_is_not_ready_before_both_config_maps_were_read():
    decided = ActiveConfig()

    assert decided.not_ready_reason() == "ConfigMap linkwise-system/linkwise was not read yet"
    decided = decided.update(POLICY, None)
    assert decided.not_ready_reason() == "ConfigMap kube-system/acs-profile was not read yet"
    assert decided.update(PROFILES, None).not_ready_reason() is None


def test_absent_config_maps_mean_the_defaults():
    decided = ActiveConfig().update(POLICY, None).update(PROFILES, None)

    assert decided.snapshot == ActiveConfig().snapshot
    assert decided.snapshot.generation == 0


def test_generation_counts_changes_of_content():
    decided = ActiveConfig().update(PROFILES, ALL)
    again = decided.update(PROFILES, f" {ALL}\n")

    assert (names(decided), decided.snapshot.generation) == (["all"], 1)
    assert again.snapshot is decided.snapshot
    assert again.update(POLICY, "strict: false").snapshot.generation == 2


@pytest.mark.parametrize(
    ("source", "text", "said"),
    [
        pytest.param(PROFILES, "[", "kube-system/acs-profile is invalid: data[selectors]"),
        pytest.param(POLICY, "a: b", "linkwise-system/linkwise is invalid: data[policy.yaml]"),
    ],
    ids=["profiles", "policy"],
)
def test_invalid_text_keeps_the_last_valid_version(source, text, said):
    good = ActiveConfig().update(POLICY, "strict: false").update(PROFILES, ALL)
    bad = good.update(source, text)

    assert bad.snapshot is good.snapshot
    assert bad.not_ready_reason() is None
    assert said in bad.error(source)
    assert bad.update(source, None).error(source) is None


@pytest.mark.parametrize("source", [POLICY, PROFILES], ids=["policy", "profiles"])
def test_text_above_the_length_limit_is_refused(source):
    good = ActiveConfig().update(POLICY, "strict: false").update(PROFILES, ALL)
    bad = good.update(source, "[" * (MOST_BYTES + 1))

    assert bad.snapshot is good.snapshot
    assert f"at most {MOST_BYTES} are read" in bad.error(source)


def test_error_lists_all_problems_with_their_lines():
    decided = ActiveConfig().update(POLICY, "a: 1\nstrict: x\n")

    why = decided.not_ready_reason()
    assert "2 problems: (1) line 1: a: " in why
    assert "(2) line 2: strict: " in why
    assert decided.error(PROFILES) is None
