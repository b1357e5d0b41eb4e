import pytest

from linkwise.policy.active_config import POLICY, PROFILES, ActiveConfig
from linkwise.policy.problem import MAX_BYTES

ALL = '[{"name": "all", "effect": {"labels": {"a": "b"}}}]'


def names(config):
    return [selector.name for selector in config.snapshot.profiles.selectors]


def test_config_is_not_ready_before_both_config_maps_were_read():
    config = ActiveConfig()

    assert config.not_ready_reason() == "ConfigMap linkwise-system/linkwise was not read yet"
    config = config.update(POLICY, None)
    assert config.not_ready_reason() == "ConfigMap kube-system/acs-profile was not read yet"
    assert config.update(PROFILES, None).not_ready_reason() is None


def test_absent_config_maps_mean_the_defaults():
    config = ActiveConfig().update(POLICY, None).update(PROFILES, None)

    assert config.snapshot == ActiveConfig().snapshot
    assert config.snapshot.generation == 0


def test_generation_counts_changes_of_content():
    config = ActiveConfig().update(PROFILES, ALL)
    reloaded = config.update(PROFILES, f" {ALL}\n")

    assert (names(config), config.snapshot.generation) == (["all"], 1)
    assert reloaded.snapshot is config.snapshot
    assert reloaded.update(POLICY, "strict: false").snapshot.generation == 2


@pytest.mark.parametrize(
    ("source", "text", "message"),
    [
        pytest.param(PROFILES, "[", "kube-system/acs-profile is invalid: data[selectors]"),
        pytest.param(POLICY, "a: b", "linkwise-system/linkwise is invalid: data[policy.yaml]"),
    ],
    ids=["profiles", "policy"],
)
def test_invalid_text_keeps_the_last_valid_version(source, text, message):
    good = ActiveConfig().update(POLICY, "strict: false").update(PROFILES, ALL)
    bad = good.update(source, text)

    assert bad.snapshot is good.snapshot
    assert bad.not_ready_reason() is None
    assert message in bad.error(source)
    assert bad.update(source, None).error(source) is None


@pytest.mark.parametrize("source", [POLICY, PROFILES], ids=["policy", "profiles"])
def test_text_above_the_length_limit_is_refused(source):
    good = ActiveConfig().update(POLICY, "strict: false").update(PROFILES, ALL)
    bad = good.update(source, "[" * (MAX_BYTES + 1))

    assert bad.snapshot is good.snapshot
    assert f"at most {MAX_BYTES} are read" in bad.error(source)


def test_error_lists_all_problems_with_their_lines():
    config = ActiveConfig().update(POLICY, "a: 1\nstrict: x\n")

    error = config.not_ready_reason()
    assert "2 problems: (1) line 1: a: " in error
    assert "(2) line 2: strict: " in error
    assert config.error(PROFILES) is None
