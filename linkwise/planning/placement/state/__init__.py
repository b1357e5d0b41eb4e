"""The cluster at one moment, and values of its nodes as columns."""
