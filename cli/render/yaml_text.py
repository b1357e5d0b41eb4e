"""A document as YAML that every reader takes as it is meant."""

import re

import yaml

_WORD = re.compile(r"[A-Za-z/][\w./ -]+")
"""Readers differ on which other texts are numbers or, such as `n`, booleans."""


class _Dumper(yaml.CSafeDumper):
    """Quotes every text that some reader could take for something else."""


def _text(dumper: _Dumper, text: str) -> yaml.Node:
    style = None if _WORD.fullmatch(text) or "\n" in text else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def yaml_text(document: object) -> str:
    """Return plain JSON values as YAML."""
    return str(yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True))
