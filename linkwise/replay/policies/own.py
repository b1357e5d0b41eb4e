"""Policies of the person who runs the command, named `module:factory`. Their code runs here."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from traceback import extract_tb

from linkwise.manifest.value import InputError
from linkwise.replay.policies.policy import Context, Policy


def is_own(name: str) -> bool:
    """Return whether a name is `module:factory`."""
    return ":" in name


def load(name: str) -> Callable[[Context], Policy]:
    """Import the module of a name, and return its factory.

    Raises:
        InputError: The module cannot be imported, or has no such function.
    """
    module_name, _, attribute = name.partition(":")
    try:
        module = import_module(module_name)
    except Exception as error:
        raise InputError(f"--policies: {module_name!r} cannot be imported: {error!r}.") from error
    factory = getattr(module, attribute, None)
    if not callable(factory):
        # A module of Python itself, and a folder, has no file.
        file = getattr(module, "__file__", None) or f"module {module_name!r}"
        raise InputError(f"--policies: {file} has no function {attribute!r}.")

    def create(run: Context) -> Policy:
        policy = factory(run)
        if not isinstance(policy, Policy):
            kind = type(policy).__name__
            raise InputError(f"--policies: {name} returns a {kind}, which has no method `place`.")
        return policy

    return create


@contextmanager
def errors_named(name: str) -> Iterator[None]:
    """Turn an error in a run of a person's policy into one that names the policy and its line.

    Raises:
        InputError: An error in the run.
    """
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        if not is_own(name):
            raise
        file = getattr(import_module(name.partition(":")[0]), "__file__", None)
        lines = [f.lineno for f in extract_tb(error.__traceback__) if f.filename == file]
        place = f" at {file}:{lines[-1]}" if lines else ""
        raise InputError(f"--policies: {name} failed{place}: {error!r}.") from error
