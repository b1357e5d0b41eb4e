"""Writes YAML that all readers decode to the same values."""

import re

import yaml

_WORD = re.compile(r"[A-Za-z/][\w./ -]+")
"""Texts that need no quotes. Readers disagree which others are numbers or booleans, such as `n`."""


class _Dumper(yaml.CSafeDumper):
    """Quotes every text that a reader could decode as another type."""


def _text(dumper: _Dumper, text: str) -> yaml.Node:
    style = None if _WORD.fullmatch(text) or "\n" in text else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def yaml_text(document: object) -> str:
    """Return plain JSON values as YAML."""
    return str(yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True))
