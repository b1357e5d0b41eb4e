import re
from pathlib import Path

from pydantic import BaseModel

from linkwise.policy.document import Policy, parse_policy
from linkwise.policy.lint import lint
from linkwise.topology.catalogue import NAMES

PAGE = (Path(__file__).parents[2] / "docs/policy.md").read_text(encoding="utf-8")
DEFAULTS, EXAMPLE = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def keys(kind, prefix=""):
    """Yield the path of each key that always has a place in the document."""
    for name, field in kind.model_fields.items():
        path = f"{prefix}{field.alias or name}"
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from keys(inner, f"{path}.")
        else:
            yield path


def written(text):
    """Return the path of each key of a YAML text whose mappings are indented by two."""
    path, found = [], set()
    for line in text.splitlines():
        if match := re.match(r"( *)(\w+):(?: +(\S+))?", line):
            depth = len(match[1]) // 2
            path[depth:] = [match[2]]
            found.add(".".join(path))
    return found


def test_the_page_lists_every_key_at_its_default_and_that_is_a_policy_without_a_problem():
    assert parse_policy(DEFAULTS) == Policy()
    assert lint(DEFAULTS, machines=NAMES).problems == ()
    assert set(keys(Policy)) <= written(DEFAULTS)


def test_the_example_is_a_policy_without_a_problem():
    assert lint(EXAMPLE, machines=NAMES).problems == ()
