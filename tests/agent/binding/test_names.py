"""Names of CDI devices and their files."""

import re

from hypothesis import given
from hypothesis import strategies as st

from agent.binding.names import device_name, file_name, is_ours, qualified_name

CDI_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.:-]*[A-Za-z0-9]")

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
SETS = st.frozensets(TEXTS)


@given(resource=TEXTS, ids=SETS)
def test_every_name_is_a_valid_cdi_name(resource, ids):
    assert CDI_NAME.fullmatch(device_name(resource, ids))


@given(a=st.tuples(TEXTS, SETS), b=st.tuples(TEXTS, SETS))
def test_two_devices_have_the_same_name_only_with_the_same_resource_and_ids(a, b):
    assert (device_name(*a) == device_name(*b)) == (a == b)


def test_the_order_of_the_ids_does_not_matter():
    assert device_name("r", ["b", "a"]) == device_name("r", ["a", "b", "a"])


def test_a_qualified_name_has_our_kind():
    assert qualified_name("d0") == "linkwise.dev/gpu=d0"


def test_own_files_are_recognised_by_their_name():
    assert is_ours(file_name(device_name("r", "a")))
    assert not is_ours("nvidia.yaml")
    assert not is_ours(f".{file_name('d0')}.tmp")
