"""The agent of a node, and containers on a real kubelet."""
