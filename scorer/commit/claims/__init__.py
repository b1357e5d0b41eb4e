"""ResourceClaims: those of Linkwise, and those that users bring."""
