"""Choose units whose eviction gives a waiting unit a plan. Pure; nothing is evicted here."""
