"""The page of `linkwise simulate -o html`: one document that needs no network and no script."""

from cli.page.document import render

__all__ = ["render"]
