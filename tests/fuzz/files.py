"""Fuzz targets for files of a person: a cluster, a policy, a kubeconfig."""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import mkstemp

import yaml

from linkwise.manifest.value import InputError
from linkwise.views.files.inputs import InputFiles, read_inputs
from linkwise.views.files.policies import read_policies
from linkwise.views.live.kubeconfig import Access, load_user_context

_RUN = frozenset({"exec", "auth-provider"})
"""Parts of a kubeconfig by which the library runs a command, or connects to a server."""

_LONGEST = 8192
_MOST_BRACKETS = 400
"""The library's time is quadratic in open ones."""


def cluster(data: bytes) -> None:
    """A cluster: the short form, or the lists that kubectl prints; also a file of policies."""
    _in_file(data, lambda path: read_inputs(InputFiles((), cluster=path)))
    _in_file(data, lambda path: read_policies(path, None))


def kubeconfig(data: bytes) -> None:
    """A kubeconfig, but none that runs a command, or that takes the library a second to read."""
    if len(data) > _LONGEST or data.count(b"[") + data.count(b"{") > _MOST_BRACKETS:
        return
    with suppress(yaml.YAMLError, ValueError, RecursionError, TypeError, AttributeError):
        # As the library reads it. What cannot be read has no command.
        if _runs_a_command(yaml.safe_load(data)):
            return
    _in_file(data, lambda path: asyncio.run(load_user_context(Access(kubeconfig=path))))


def _runs_a_command(tree: object) -> bool:
    if isinstance(tree, dict):
        return not _RUN.isdisjoint(map(str, tree)) or any(map(_runs_a_command, tree.values()))
    return isinstance(tree, list) and any(map(_runs_a_command, tree))


def _in_file(data: bytes, read: Callable[[str], object]) -> None:
    handle, path = mkstemp(prefix="fuzz-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        with suppress(InputError):
            read(path)
    finally:
        Path(path).unlink()
