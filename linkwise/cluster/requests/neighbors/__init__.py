"""Rules of a pod about the pods near it, and a pod as the rules of others see it."""
