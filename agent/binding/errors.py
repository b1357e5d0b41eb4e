"""Errors of binding."""


class BindError(Exception):
    """A container cannot have its GPUs; the message has the reason and the remedy, for people."""
