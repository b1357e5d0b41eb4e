"""Every module of the benchmarks can be imported: `make bench` alone runs most of them."""

import importlib
import pkgutil

import pytest

from tools import bench

_MODULES = [
    each.name
    for each in pkgutil.walk_packages(bench.__path__, f"{bench.__name__}.")
    if not each.ispkg
]


@pytest.mark.parametrize("module", _MODULES)
def test_each_module_can_be_imported(module):
    importlib.import_module(module)
