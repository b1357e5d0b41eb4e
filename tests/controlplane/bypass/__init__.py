"""A tenant that tries to get more GPUs than admitted, at random, and a judge of what it got."""
