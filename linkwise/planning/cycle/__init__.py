"""One scheduling cycle: the order of units, and their plans."""
