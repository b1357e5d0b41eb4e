"""Requests to an autoscaler for nodes, on behalf of units that wait for capacity."""
