"""The error for invalid machines."""


class TopologyError(ValueError):
    """A text or a description is no machine; the message says what is missing and where."""
