"""HTTP endpoints of the leader: inspection, fit questions and the scheduler extender."""
