"""Writing of plans: one gang at a time, all of its pods concurrently."""
