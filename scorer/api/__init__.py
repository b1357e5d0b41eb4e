"""HTTP endpoints of the leader: inspection, what-if requests and the scheduler extender."""
