from pathlib import Path

import pytest
from fuzz.targets import TARGETS

CORPUS = Path(__file__).parent / "corpus"
INPUTS = sorted(path.relative_to(CORPUS) for path in CORPUS.glob("*/*"))


def test_each_target_has_inputs_to_begin_with():
    assert {path.parts[0] for path in INPUTS} == TARGETS.keys()


@pytest.mark.parametrize("path", INPUTS, ids=str)
def test_no_input_that_is_kept_breaks_its_target(path):
    TARGETS[path.parts[0]]((CORPUS / path).read_bytes())
