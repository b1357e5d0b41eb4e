"""What this package raises when it is given something that is no machine."""


class TopologyError(ValueError):
    """A text or a description is no machine; the message says what is missing and where."""
