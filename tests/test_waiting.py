"""A wait that fails names its condition, and hides no mistake of the test."""

import pytest
from support.waiting import until, until_true

SHORT = 0.05


async def test_a_timeout_shows_the_condition():
    leaders = []
    with pytest.raises(TimeoutError, match=r'leaders == \["first"\]'):
        await until(lambda: leaders == ["first"], SHORT)


async def test_a_timeout_shows_the_coroutine_function():
    async def leads():
        return False

    with pytest.raises(TimeoutError, match="async def leads"):
        await until_true(leads, SHORT)


@pytest.mark.parametrize("mistake", [TypeError, AttributeError, NameError])
async def test_a_mistake_in_the_condition_is_raised_at_once(mistake):
    def condition():
        raise mistake("wrong")

    with pytest.raises(mistake, match="wrong"):
        await until(condition)


async def test_an_object_that_does_not_exist_yet_is_waited_for():
    found = iter([{}, {"a": 1}])
    await until(lambda: next(found)["a"] == 1)


async def test_a_lookup_that_fails_until_the_end_is_the_cause():
    with pytest.raises(TimeoutError) as raised:
        await until(lambda: {}["missing"], SHORT)
    assert repr(raised.value.__cause__) == "KeyError('missing')"
